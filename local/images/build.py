"""The project's images: built without an engine, from wheels fetched beforehand, and only when changed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from local.errors import LocalClusterError
from local.host.commands import run, succeeds
from local.host.hashing import content_key
from local.host.lock import exclusive
from local.host.progress import Steps
from local.images.archives import write_thin
from local.images.debian import BASE_IMAGE, ensure_base_image
from local.images.node_images import Loadable, NodeImages
from local.images.wheels import fetch_wheels
from local.layout import REPOSITORY, cache_dir
from local.programs.requirements import IMAGES, ensure_requirements

IMAGE_NAMES = ("operator", "dask", "dask-cpu")
_REGISTRY = "localhost/gpudask"
# What of the package each Containerfile copies: an edit of the operator leaves the Dask images as they are.
_FOR_TASKS = ("__init__.py", "entry.py", "py.typed", "api", "kubecluster", "stock")
_PACKAGE_PARTS = {"operator": ("",), "dask": _FOR_TASKS, "dask-cpu": _FOR_TASKS}


@dataclass(frozen=True)
class StoredImage:
    """An image in buildah's storage."""

    reference: str
    image_id: str
    other_names: tuple[str, ...] = ()

    def load_into(self, nodes: NodeImages) -> None:
        """Put it on the nodes that lack it; where none does, nothing is exported."""
        names = (self.reference, *self.other_names)
        if not nodes.lacking(self.image_id, names):
            return
        with tempfile.TemporaryDirectory(dir=cache_dir() / "images") as directory:
            whole, thin = Path(directory) / "whole.tar", Path(directory) / "thin.tar"
            run(["buildah", "push", self.image_id, f"docker-archive:{whole}:{self.reference}"])
            write_thin(whole, thin, reference=self.reference, present=nodes.common_blobs())
            nodes.load(Loadable(thin, self.reference, self.image_id, self.other_names))


def image_in_storage(name: str) -> StoredImage:
    """Find an image in buildah's storage.

    Raises:
        LocalClusterError: it is not there.
    """
    if not succeeds(["buildah", "inspect", "--type", "image", name]):
        raise LocalClusterError(f"{name} is neither a file nor an image in buildah's storage: `buildah images`.")
    image_id = run(["buildah", "inspect", "--type", "image", "--format", "{{.FromImageID}}", name]).strip()
    return StoredImage(name, image_id)


def build_images(names: Sequence[str], nodes: NodeImages | None, steps: Steps) -> list[str]:
    """Build what has changed, and put it on `nodes` where they are given.

    Returns:
        A reference each, whose tag is the hash of all that went in; the tag `dev` follows it.

    Raises:
        LocalClusterError: a name is unknown, or a build fails; the text has the log's path.
    """
    if unknown := set(names) - set(IMAGE_NAMES):
        raise LocalClusterError(f"no image is named {', '.join(unknown)}. There are: {', '.join(IMAGE_NAMES)}.")
    ensure_requirements(IMAGES, steps)
    with exclusive(cache_dir() / "images"):
        base_id = ensure_base_image(steps)
        with _context() as context:
            images = [_ensure_image(name, base_id, context, steps) for name in names]
    for image in images:
        if nodes:
            with steps.step(f"Loading {image.reference}"):
                image.load_into(nodes)
    return [image.reference for image in images]


def _ensure_image(name: str, base_id: str, context: Path, steps: Steps) -> StoredImage:
    containerfile = context / "images" / name / "Containerfile"
    lock = context / "requirements" / f"{name}.lock"
    licences = [context / "LICENSE", context / "images" / "notices.py"]
    sources = [
        containerfile.parent,
        lock,
        *licences,
        *(context / "operator" / "gpudask" / part for part in _PACKAGE_PARTS[name]),
    ]
    key = content_key(texts=[base_id], files=sources, relative_to=context)
    reference, moving = f"{_REGISTRY}/{name}:{key}", f"{_REGISTRY}/{name}:dev"
    if not succeeds(["buildah", "inspect", "--type", "image", reference]):
        wheels = fetch_wheels(lock, steps)
        log = cache_dir() / "logs" / f"image-{name}.log"
        with steps.step(f"Building {reference}", log=log):
            _build(context, containerfile, wheels, reference, log)
    run(["buildah", "tag", reference, moving])
    return StoredImage(reference, image_in_storage(reference).image_id, (moving,))


def _build(context: Path, containerfile: Path, wheels: Path, reference: str, log: Path) -> None:
    """Build in a chroot: without CAP_SYS_RESOURCE, buildah's own containers would not start."""
    run(
        [
            "buildah",
            "bud",
            "--layers",
            "--isolation=chroot",
            "--network=host",
            f"--build-arg=BASE={BASE_IMAGE}",
            "--build-arg=PIP_ARGS=--no-index --find-links /wheels",
            f"--volume={wheels}:/wheels:ro",
            f"--file={containerfile}",
            f"--tag={reference}",
            str(context),
        ],
        log=log,
    )


@contextmanager
def _context() -> Iterator[Path]:
    """Copy what goes into the images: an edit during a build must not end up under the old content's hash."""
    with tempfile.TemporaryDirectory() as directory:
        context = Path(directory)
        without_bytecode = shutil.ignore_patterns("__pycache__")
        for part in ("images", "requirements", "operator"):
            shutil.copytree(REPOSITORY / part, context / part, ignore=without_bytecode)
        shutil.copyfile(REPOSITORY / "LICENSE", context / "LICENSE")
        yield context
