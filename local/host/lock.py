"""One command at a time on one thing: two `up`s at once would start every part twice."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Wait for others who hold `path`, then hold it: a file or directory that need not exist.

    The lock is a file beside `path`, which whoever holds it may so delete.
    """
    lock = lock_of(path)
    lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_same(file.fileno(), lock):
                continue  # its last holder has removed it: a newcomer would lock another file
            yield
            return


def lock_of(path: Path) -> Path:
    """Find the file that stands for `path`; who holds it may unlink it."""
    return path.with_name(f"{path.name}.lock")


def _is_same(descriptor: int, path: Path) -> bool:
    return path.exists() and os.fstat(descriptor).st_ino == path.stat().st_ino
