"""The base of the local images: a minimal Debian with Python, made by debootstrap, since no registry is asked."""

from __future__ import annotations

import shutil
from pathlib import Path

from local.host.commands import run, succeeds
from local.host.hashing import content_key
from local.host.progress import Steps
from local.layout import cache_dir

_SUITE = "bookworm"
_PACKAGES = "python3,python3-venv,ca-certificates,libgomp1"  # the last one is the Dask images' DEBIAN_PACKAGES
_OPTIONS = ("--variant=minbase", f"--include={_PACKAGES}", _SUITE)
_LEFT_OUT = ("./var/cache/apt", "./var/lib/apt/lists", "./usr/share/doc", "./usr/share/man", "./usr/share/locale")
BASE_IMAGE = f"localhost/gpudask/base:{_SUITE}"


def ensure_base_image(steps: Steps) -> str:
    """Have the base image in buildah's storage. Returns its id."""
    root = ensure_root_file_system(steps)
    reference = f"{BASE_IMAGE}-{root.stem}"
    if not succeeds(["buildah", "inspect", "--type", "image", reference]):
        with steps.step("Making the base image"):
            _commit(root, reference)
    run(["buildah", "tag", reference, BASE_IMAGE])
    return run(["buildah", "inspect", "--type", "image", "--format", "{{.FromImageID}}", reference]).strip()


def ensure_root_file_system(steps: Steps) -> Path:
    """Keep the root file system as an archive: buildah's storage may be emptied by others."""
    key = content_key(texts=[*_OPTIONS, *_LEFT_OUT], relative_to=cache_dir())
    archive = cache_dir() / "images" / f"{key}.tar"
    if archive.exists():
        return archive
    directory, log = archive.with_suffix(".root"), cache_dir() / "logs" / "debootstrap.log"
    shutil.rmtree(directory, ignore_errors=True)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with steps.step("Making a minimal Debian with Python", log=log):
        variant, include, suite = _OPTIONS
        run(["debootstrap", variant, include, suite, str(directory)], log=log)
        unfinished = archive.with_suffix(".new")
        left_out = [f"--exclude={path}/*" for path in _LEFT_OUT]
        run(["tar", "--numeric-owner", *left_out, "-C", str(directory), "-cf", str(unfinished), "."])
        unfinished.replace(archive)
        shutil.rmtree(directory)
    return archive


def _commit(root: Path, reference: str) -> None:
    container = run(["buildah", "from", "scratch"]).strip()
    try:
        run(["buildah", "add", container, str(root), "/"])
        run(["buildah", "config", "--cmd", "/bin/bash", "--env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", container])
        run(["buildah", "commit", container, reference])
    finally:
        run(["buildah", "rm", container])
