"""Check a bundle for missing and damaged parts: every fault is reported at once, one line each."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from local.bundle.manifest import Manifest, Part, hash_of
from local.errors import LocalClusterError


def verify(directory: Path) -> Manifest:
    """Check the bundle in `directory`: every part by its size and hash, and the machine that it is for.

    Raises:
        LocalClusterError: something is missing, damaged or for another machine; the text names each.
    """
    manifest = Manifest.read(directory)
    with ThreadPoolExecutor() as pool:
        faults = [fault for fault in pool.map(lambda part: part_fault(directory, part), manifest.parts) if fault]
    faults += machine_faults(manifest)
    if faults:
        raise LocalClusterError(f"The bundle in {directory} cannot be used:\n" + "\n".join(f"- {f}" for f in faults))
    return manifest


def part_fault(directory: Path, part: Part) -> str | None:
    """Tell what is wrong with a part; None where nothing is."""
    path = directory / part.name
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return f"{part.name} is missing ({part.size} bytes): copy it beside the manifest."
    if size != part.size:
        return f"{part.name} has {size} bytes and should have {part.size}: copy it once more."
    if hash_of(path) != part.sha256:
        return f"{part.name} is damaged, its SHA-256 is not {part.sha256}: copy it once more."
    return None


def machine_faults(
    manifest: Manifest, *, machine: str = platform.machine(), libc: tuple[str, str] | None = None
) -> Iterator[str]:
    """Tell why this machine cannot run what is in the bundle; `libc` is a name and a version."""
    if machine != manifest.machine:
        yield f"it is for {manifest.machine}, and this machine is {machine}: pack it on one of the same kind."
    name, version = libc or platform.libc_ver()
    if name != "glibc":
        yield f"it needs the GNU C library, and this Python runs on {name or 'another'}: take Debian, Ubuntu or alike."
    elif _numbers(version) < _numbers(manifest.glibc):
        yield (
            f"it needs the C library {manifest.glibc} and this machine has {version}: "
            "pack it on a machine as old as this one."
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))
