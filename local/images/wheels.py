"""The wheels that an image installs, fetched on the machine: inside, no package index is needed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from local.bundle.activation import active_bundle
from local.errors import LocalClusterError
from local.host.commands import run
from local.host.hashing import content_key
from local.host.lock import exclusive
from local.host.progress import Steps
from local.layout import cache_dir

_PYTHON = "3.11"
"""The base image's: Debian 12 has it."""


def fetch_wheels(lock: Path, steps: Steps, *, python: str = _PYTHON) -> Path:
    """Download what `lock` pins, hashes checked. Returns the directory, shared by equal locks.

    Raises:
        LocalClusterError: something cannot be had, or the active bundle was made with another lock.
    """
    key = content_key(texts=[python], files=[lock], relative_to=lock.parent)
    name = f"{lock.stem}-{key}"
    if bundle := active_bundle():
        if not (bundle / "wheels" / name).is_dir():
            raise LocalClusterError(
                f"the bundle has no wheels for this {lock.name} and Python {python}: "
                "pack one from this checkout, for a Python that it names."
            )
        return bundle / "wheels" / name
    target = cache_dir() / "wheels" / name
    with exclusive(target):
        if not target.exists():
            _download(lock, target, steps, python)
    return target


def _download(lock: Path, target: Path, steps: Steps, python: str) -> None:
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
                f"--python-version={python}",
                f"--requirement={lock}",
                f"--dest={unfinished}",
            ],
            log=log,
        )
    unfinished.rename(target)
