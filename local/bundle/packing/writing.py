"""Writing a bundle: contents that occur twice are kept once, archives are compressed, the whole is cut into parts."""

from __future__ import annotations

import hashlib
import lzma
import os
import platform
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.bundle.manifest import MANIFEST, Archive, Content, File, Manifest, Part, blocks_of, hash_of
from local.errors import LocalClusterError

BEST = 9
_SMALLEST_PART = 1 << 20
_DICTIONARY_BYTES = {BEST: 64 << 20}
"""The best preset's own; what unpacks takes as much memory an archive."""


@dataclass(frozen=True)
class Item:
    """A file for the bundle: `source`'s bytes, or a link to `link`, at `path`, in the archive `archive`."""

    path: str
    archive: str
    source: Path | None = None
    executable: bool = False
    link: str = ""


@dataclass
class _Plan:
    """The layout of a bundle, before anything is compressed."""

    files: list[File] = field(default_factory=list)
    archives: dict[str, list[tuple[Content, Path]]] = field(default_factory=dict)


def write_bundle(
    items: Iterable[Item], directory: Path, *, part_bytes: int, preset: int = BEST, cache: Path | None = None
) -> Manifest:
    """Write parts of at most `part_bytes` bytes, and the manifest, into `directory`; an older bundle there goes.

    Args:
        items: what goes in.
        directory: made where it is missing.
        part_bytes: at least 1 MiB.
        preset: of xz, from 0 (fast) to 9 (small).
        cache: where compressed archives are kept for the next time; none are where it is None.

    Raises:
        LocalClusterError: the size is too small, or two different files would have one path.
    """
    if part_bytes < _SMALLEST_PART:
        raise LocalClusterError(f"a part of {part_bytes} bytes is too small: write 1MiB or more.")
    plan = _plan(items)
    directory.mkdir(parents=True, exist_ok=True)
    work = cache or directory
    work.mkdir(parents=True, exist_ok=True)
    for old in (*directory.glob("part-*"), directory / MANIFEST):
        old.unlink(missing_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compressed = list(pool.map(lambda rows: _compressed(rows, work, preset), plan.archives.values()))
    archives, offset = [], 0
    for (name, rows), path in zip(plan.archives.items(), compressed, strict=True):
        size = path.stat().st_size
        archives.append(Archive(name, offset, size, tuple(content for content, _ in rows)))
        offset += size
    parts = split(compressed, directory, part_bytes)
    if cache is None:
        for path in compressed:
            path.unlink()
    glibc = platform.libc_ver()[1]
    manifest = Manifest(platform.machine(), glibc, tuple(parts), tuple(archives), tuple(plan.files))
    (directory / MANIFEST).write_text(manifest.text(), encoding="utf-8")
    return manifest


def split(sources: Sequence[Path], directory: Path, part_bytes: int) -> list[Part]:
    """Write the sources, one after the other, as files of `part_bytes` bytes each but the last."""
    parts: list[Part] = []
    blocks = (block for source in sources for block in blocks_of(source))
    rest = memoryview(b"")
    while True:
        name = f"part-{len(parts):03d}"
        digest, size = hashlib.sha256(), 0
        with (directory / name).open("wb") as part:
            while size < part_bytes:
                rest = rest or memoryview(next(blocks, b""))
                if not rest:
                    break
                piece, rest = rest[: part_bytes - size], rest[part_bytes - size :]
                part.write(piece)
                digest.update(piece)
                size += len(piece)
        if size == 0:
            (directory / name).unlink()
            return parts
        parts.append(Part(name, size, digest.hexdigest()))


def _plan(items: Iterable[Item]) -> _Plan:
    plan, seen, paths = _Plan(), set[str](), dict[str, File]()
    for item in items:
        if item.source is None:
            file = File(item.path, link=item.link)
        else:
            content = Content(item.source.stat().st_size, hash_of(item.source))
            file = File(item.path, content.sha256, 0o755 if item.executable else 0o644)
            if content.sha256 not in seen:
                seen.add(content.sha256)
                plan.archives.setdefault(item.archive, []).append((content, item.source))
        if paths.setdefault(item.path, file) != file:
            raise LocalClusterError(f"two different files would be {item.path} in the bundle.")
        plan.files.append(file)
    # Small ones first: sources, which somebody may be editing, are read before the minutes that the others take.
    plan.archives = dict(sorted(plan.archives.items(), key=lambda row: sum(content.size for content, _ in row[1])))
    return plan


def _compressed(rows: Sequence[tuple[Content, Path]], directory: Path, preset: int) -> Path:
    """Compress a row of contents; the same row was perhaps compressed before."""
    filters = _filters(preset)
    key = hashlib.sha256(repr((filters, [content.sha256 for content, _ in rows])).encode()).hexdigest()[:16]
    target = directory / f"{key}.xz"
    if not target.exists():
        unfinished = target.with_suffix(".new")
        with lzma.open(unfinished, "wb", filters=filters) as archive:
            for content, source in rows:
                digest = hashlib.sha256()
                for block in blocks_of(source):
                    archive.write(block)
                    digest.update(block)
                if digest.hexdigest() != content.sha256:
                    raise LocalClusterError(f"{source} was changed while it was packed: pack once more.")
        unfinished.replace(target)
    return target


def _filters(preset: int) -> list[dict[str, Any]]:
    compression = {"id": lzma.FILTER_LZMA2, "preset": preset}
    if dictionary := _DICTIONARY_BYTES.get(preset):
        compression["dict_size"] = dictionary
    branches = [{"id": lzma.FILTER_X86}] if platform.machine() == "x86_64" else []
    return [*branches, compression]
