"""Image archives, as `docker save` or `buildah push docker-archive:` write them: read, and made thin.

Thin is an archive without the layers that its readers already have: an edit then loads in a second.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from local.errors import LocalClusterError

_OCI = "application/vnd.oci.image"


@dataclass(frozen=True)
class Archived:
    """The first image in an archive."""

    reference: str
    image_id: str


def read_archive(path: Path) -> Archived:
    """Read the name and the id of the image in `path`.

    Raises:
        LocalClusterError: it is no such archive, or its image has no name.
    """
    try:
        with tarfile.open(path) as archive:
            member = archive.extractfile("manifest.json")
            assert member is not None
            manifest = json.load(member)
    except (tarfile.TarError, KeyError, OSError) as error:
        raise LocalClusterError(
            f"{path} is no image archive ({error}): write one with `docker save` or `podman save`."
        ) from error
    tags = manifest[0].get("RepoTags") or []
    if not tags:
        raise LocalClusterError(f"the image in {path} has no name: save it by its name, not by its id.")
    image_id = Path(manifest[0]["Config"]).name.removesuffix(".json")
    return Archived(tags[0], image_id)


def write_thin(archive: Path, target: Path, *, reference: str, present: AbstractSet[str]) -> None:
    """Rewrite a docker-archive as an OCI archive that leaves out layers.

    Only for archives from `buildah push docker-archive:`, whose layers are never compressed, and from layers.py: a
    layer's digest in the image's configuration is then that of the file, and of the blob in containerd's store.

    Args:
        archive: what buildah wrote.
        target: where the OCI archive goes.
        reference: the name that containerd shall give the image.
        present: digests, as in `sha256:...`, of layers to leave out.
    """
    with tarfile.open(archive) as source, tarfile.open(target, mode="w") as thin:
        listing = json.load(_open(source, "manifest.json"))[0]
        config = _open(source, listing["Config"]).read()
        layers = []
        diff_ids = json.loads(config)["rootfs"]["diff_ids"]
        for name, digest in zip(listing["Layers"], diff_ids, strict=True):
            size = source.getmember(name).size
            layers.append(_descriptor("layer.v1.tar", digest, size))
            if digest not in present:
                _add(thin, _blob(digest), size, _open(source, name))
        config_digest = _add_blob(thin, config)
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": _descriptor("config.v1+json", config_digest, len(config)),
            "layers": layers,
        }
        _add_index(thin, json.dumps(manifest).encode(), reference)


def _add_index(thin: tarfile.TarFile, manifest: bytes, reference: str) -> None:
    entry = _descriptor("manifest.v1+json", _add_blob(thin, manifest), len(manifest))
    entry["annotations"] = {"io.containerd.image.name": reference}
    for name, content in (
        ("index.json", {"schemaVersion": 2, "manifests": [entry]}),
        ("oci-layout", {"imageLayoutVersion": "1.0.0"}),
    ):
        encoded = json.dumps(content).encode()
        _add(thin, name, len(encoded), io.BytesIO(encoded))


def _descriptor(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": f"{_OCI}.{kind}", "digest": digest, "size": size}


def _add_blob(thin: tarfile.TarFile, content: bytes) -> str:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    _add(thin, _blob(digest), len(content), io.BytesIO(content))
    return digest


def _add(thin: tarfile.TarFile, name: str, size: int, content: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size = size
    thin.addfile(member, content)


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _open(source: tarfile.TarFile, name: str) -> IO[bytes]:
    file = source.extractfile(name)
    assert file is not None, f"{name} is no file in {source.name!r}"
    return file
