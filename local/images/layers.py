"""Images of several layers, written as `docker save` would, without any engine."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from local.bundle.manifest import hash_of
from local.images.scratch import ARCHITECTURES

USER = 10001
"""Whom images run as: the user of images/*."""


def write_image(target: Path, *, reference: str, layers: Sequence[Path], config: Mapping[str, Any]) -> None:
    """Write an image of `layers`, the lowest first, that runs as `config` says (Entrypoint, Env, User, ...)."""
    digests = [hash_of(layer) for layer in layers]
    image = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
    }
    names = [f"{digest}/layer.tar" for digest in digests]
    configuration = json.dumps(image)
    # Readers take the image's id from the file's name.
    name = f"{hashlib.sha256(configuration.encode()).hexdigest()}.json"
    listing = [{"Config": name, "RepoTags": [reference], "Layers": names}]
    with tarfile.open(target, mode="w") as archive:
        for place, layer in zip(names, layers, strict=True):
            archive.add(layer, place)
        _add_text(archive, name, configuration)
        _add_text(archive, "manifest.json", json.dumps(listing))


def write_layer(target: Path, files: Mapping[str, Path], texts: Mapping[str, str] | None = None) -> None:
    """Write a layer of `files` and `texts`, by their absolute paths in the image.

    Everything is root's, for all to read; /tmp is for all to write.
    """
    texts = texts or {}
    with tarfile.open(target, mode="w") as layer:
        for directory in sorted(_parents([*files, *texts])):
            _add_directory(layer, directory, 0o755)
        _add_directory(layer, "tmp", 0o1777)
        for name, text in texts.items():
            _add_text(layer, name.lstrip("/"), text)
        for name, path in sorted(files.items()):
            _add_file(layer, name.lstrip("/"), path)


def below(directory: Path, place: str) -> dict[str, Path]:
    """List the files of a directory that shall be at `place` in the image."""
    return {f"{place}/{path.relative_to(directory)}": path for path in directory.rglob("*") if path.is_file()}


def _add_file(layer: tarfile.TarFile, name: str, path: Path) -> None:
    status = path.stat()
    member = tarfile.TarInfo(name)
    member.size = status.st_size
    member.mtime = int(status.st_mtime)  # Python compares it with what stands in its bytecode
    member.mode = 0o755 if status.st_mode & 0o100 else 0o644
    with path.open("rb") as content:
        layer.addfile(member, content)


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    content = text.encode()
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _add_directory(layer: tarfile.TarFile, name: str, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode = tarfile.DIRTYPE, mode
    layer.addfile(member)


def _parents(names: Iterable[str]) -> set[str]:
    return {str(parent).lstrip("/") for name in names for parent in Path(name).parents if parent != Path("/")}
