"""Images of one static binary, written as `docker save` would, without any engine."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_archive(target: Path, *, reference: str, files: Mapping[str, Path], command: Sequence[str]) -> str:
    """Write an image of executables and nothing else. The same files give the same image.

    Args:
        target: where the archive goes.
        reference: the image's name and tag.
        files: path in the image -> executable.
        command: what a container of it runs.

    Returns:
        The image's id, 64 hexadecimal digits.
    """
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for name, source in files.items():
            _add(archive, name.lstrip("/"), source.read_bytes(), mode=0o755)
    layer_digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = json.dumps(
        {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": list(command)},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
        }
    ).encode()
    image_id = hashlib.sha256(config).hexdigest()
    layer_name = f"{layer_digest}/layer.tar"
    manifest = [{"Config": f"{image_id}.json", "RepoTags": [reference], "Layers": [layer_name]}]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, mode="w") as archive:
        _add(archive, f"{image_id}.json", config)
        _add(archive, layer_name, layer.getvalue())
        _add(archive, "manifest.json", json.dumps(manifest).encode())
    return image_id


def _add(archive: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = mode
    archive.addfile(member, io.BytesIO(content))
