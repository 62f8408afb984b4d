"""Wheels as files: stored without their own compression for the bundle, and unpacked where they are used."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

_EPOCH = (1980, 1, 1, 0, 0, 0)
_SCHEMES = {"purelib", "platlib"}


def store_wheel(
    source: Path, target: Path, edit: Callable[[str, bytes], bytes | None] = lambda _, content: content
) -> None:
    """Write the wheel `source` without compression: the bundle's own works across files and does better.

    `edit` takes each file's name and content, and returns what is written; None leaves the file out.
    """
    with zipfile.ZipFile(source) as wheel, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as stored:
        for entry in wheel.infolist():
            plain = zipfile.ZipInfo(entry.filename, _EPOCH)
            plain.external_attr = entry.external_attr
            content = edit(entry.filename, wheel.read(entry))
            if content is not None:
                stored.writestr(plain, content)


def unpack_wheels(wheels: Path, target: Path) -> Path:
    """Unpack every wheel in `wheels` side by side, unless that was done. Returns `target`, for Python's path.

    Scripts are left out: `python -m` does without.
    """
    if target.is_dir():
        return target
    unfinished = target.with_name(f"{target.name}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for path in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(unfinished)
    for data in unfinished.glob("*.data"):
        for scheme in data.iterdir():
            if scheme.name in _SCHEMES:
                shutil.copytree(scheme, unfinished, dirs_exist_ok=True)
        shutil.rmtree(data)
    unfinished.rename(target)
    return target
