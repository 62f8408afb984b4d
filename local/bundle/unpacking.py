"""A bundle's parts back into files: archives side by side, each content checked before it takes its name."""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from local.bundle.manifest import Archive, Content, File, Manifest
from local.errors import LocalClusterError

_BLOCK = 1 << 20


def unpack(manifest: Manifest, directory: Path, target: Path) -> None:
    """Unpack the verified bundle in `directory` to `target`, which appears only when it is whole.

    Raises:
        LocalClusterError: the disk is full, or the parts do not hold what the manifest says.
    """
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(target.parent).free
    if free < 2 * manifest.unpacked_bytes:
        raise LocalClusterError(
            f"{target.parent} has {free >> 20} MiB free, and unpacking takes {2 * manifest.unpacked_bytes >> 20}: "
            "set GPUDASK_CACHE_DIR to a larger disk."
        )
    unfinished = target.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    places: dict[str, list[File]] = {}
    for file in manifest.files:
        _place(unfinished, file).parent.mkdir(parents=True, exist_ok=True)
        if file.link:
            _place(unfinished, file).symlink_to(file.link)
        else:
            places.setdefault(file.sha256, []).append(file)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda archive: _unpack(manifest, directory, archive, places, unfinished), manifest.archives))
    unfinished.rename(target)


def _place(root: Path, file: File) -> Path:
    """Find where a file goes: below `root`, whatever the manifest says."""
    place = root / file.path
    if ".." in Path(file.path).parts or not place.is_relative_to(root):
        raise LocalClusterError(f"the manifest names {file.path!r}, which lies outside the bundle: it is not ours.")
    return place


def _unpack(manifest: Manifest, directory: Path, archive: Archive, places: dict[str, list[File]], root: Path) -> None:
    compressed = io.BufferedReader(_Range(manifest, directory, archive), _BLOCK)
    try:
        with lzma.open(compressed) as stream:
            for content in archive.contents:
                _write(stream, content, places[content.sha256], root)
    except (lzma.LZMAError, EOFError) as error:
        raise LocalClusterError(f"the archive {archive.name} in {directory} is damaged: {error}.") from error


def _write(stream: lzma.LZMAFile, content: Content, files: Iterable[File], root: Path) -> None:
    first, *others = files
    place, digest, left = _place(root, first), hashlib.sha256(), content.size
    with place.open("wb") as file:
        while left and (block := stream.read(min(left, _BLOCK))):
            file.write(block)
            digest.update(block)
            left -= len(block)
    if left or digest.hexdigest() != content.sha256:
        raise LocalClusterError(f"{first.path} does not come out of the bundle as it went in: copy the parts again.")
    place.chmod(first.mode)
    for other in others:
        if other.mode == first.mode:
            os.link(place, _place(root, other))
        else:
            shutil.copyfile(place, _place(root, other))
            _place(root, other).chmod(other.mode)


@dataclass
class _Range(io.RawIOBase):
    """The bytes of one archive, wherever the parts were cut."""

    manifest: Manifest
    directory: Path
    archive: Archive
    position: int = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        """Fill `buffer` up to the end of the archive or of a part, whichever comes first."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        start = self.archive.offset + self.position
        ends = list(accumulate(part.size for part in self.manifest.parts))
        number = next((n for n, end in enumerate(ends) if start < end), len(ends))
        wanted = min(len(view), self.archive.size - self.position)
        if wanted == 0 or number == len(ends):
            return 0
        part = self.manifest.parts[number]
        with (self.directory / part.name).open("rb") as file:
            file.seek(start - (ends[number] - part.size))
            found = file.readinto(view[:wanted])
        self.position += found
        return found
