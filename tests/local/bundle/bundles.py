"""Small bundles for the tests."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from local.bundle.manifest import Manifest
from local.bundle.packing.writing import Item, write_bundle
from local.bundle.unpacking import unpack
from local.bundle.verifying import verify

MIB = 1 << 20


def noise(path: Path, size: int, seed: int = 1) -> Path:
    """Write bytes that no compression makes smaller."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(random.Random(seed).randbytes(size))  # noqa: S311 - no secret
    return path


def small_bundle(tmp_path: Path, *, part_bytes: int = MIB) -> Path:
    """A bundle of three archives over several parts. Returns its directory; the sources are in `tmp_path`/src.

    It is packed once for each size of parts, and copied from then on.
    """
    for name, content in _packed(part_bytes).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "bundle"


def pack_small_bundle(tmp_path: Path, *, part_bytes: int = MIB) -> Path:
    """The same, packed here."""
    src = tmp_path / "src"
    items = [
        Item("bin/large", "large", noise(src / "large", 2 * MIB + 12345), executable=True),
        Item("bin/other", "other", noise(src / "other", 300_000, seed=2), executable=True),
        Item("text/a", "texts", noise(src / "a", 5000, seed=3)),
        Item("text/again", "texts", src / "a"),
        Item("text/run", "texts", src / "a", executable=True),
        Item("text/empty", "texts", noise(src / "empty", 0)),
        Item("text/link", "texts", link="a"),
    ]
    write_bundle(items, tmp_path / "bundle", part_bytes=part_bytes, preset=0)
    return tmp_path / "bundle"


@cache
def _packed(part_bytes: int) -> dict[str, bytes]:
    """The files of such a bundle and of its sources, by their paths."""
    with TemporaryDirectory() as folder:
        pack_small_bundle(Path(folder), part_bytes=part_bytes)
        return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def read(directory: Path, target: Path) -> Manifest:
    """Check a bundle and unpack it."""
    manifest = verify(directory)
    unpack(manifest, directory, target)
    return manifest
