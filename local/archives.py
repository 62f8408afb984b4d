"""Names and configuration read from an image archive, as `docker save` or `buildah push docker-archive:` write it."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

from local.errors import LocalClusterError


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
