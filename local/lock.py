"""One command at a time on one thing: two `up`s at once would start every part twice."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Wait for others who hold `path`, then hold it: a file or directory that need not exist.

    The lock is a file beside `path`, which whoever holds it may so delete.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
