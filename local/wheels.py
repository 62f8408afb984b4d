"""The wheels that an image installs, fetched on the machine: inside, no package index is needed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from local.commands import run
from local.hashing import content_key
from local.layout import cache_dir
from local.progress import Steps

_PYTHON = "3.11"
"""The base image's: Debian 12 has it."""


def fetch_wheels(lock: Path, steps: Steps) -> Path:
    """Download what `lock` pins, hashes checked. Returns the directory, shared by equal locks."""
    key = content_key(texts=[_PYTHON], files=[lock], relative_to=lock.parent)
    target = cache_dir() / "wheels" / f"{lock.stem}-{key}"
    if target.exists():
        return target
    unfinished = target.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    log = cache_dir() / "logs" / f"wheels-{lock.stem}.log"
    with steps.step(f"Downloading the packages of {lock.name}", log=log):
        run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--require-hashes",
                "--no-deps",
                "--only-binary=:all:",
                f"--python-version={_PYTHON}",
                f"--requirement={lock}",
                f"--dest={unfinished}",
            ],
            log=log,
        )
    unfinished.rename(target)
    return target
