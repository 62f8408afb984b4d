"""The operator's image where nothing can be fetched: the machine's own Python, and the wheels of a bundle.

It runs as the image of images/operator does: same user, same module, nothing to write but /tmp.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from local.bundle.activation import PYTHON
from local.bundle.wheel_files import unpack_wheels
from local.host.hashing import content_key
from local.host.lock import exclusive
from local.host.progress import Steps
from local.images.archives import write_thin
from local.images.host_python import LIBRARIES, compile_packages, interpreter, python_files
from local.images.layers import USER, below, write_image, write_layer
from local.images.node_images import Loadable, NodeImages
from local.images.wheels import fetch_wheels
from local.layout import REPOSITORY, cache_dir

_ENVIRONMENT, _PACKAGE = "/opt/gpudask-env", "/opt/gpudask"
_ACCOUNTS = {
    "/etc/passwd": f"root:x:0:0:root:/root:/bin/sh\ngpudask:x:{USER}:{USER}::/tmp:/bin/sh\n",
    "/etc/group": f"root:x:0:\ngpudask:x:{USER}:\n",
}
_FORM = "1"
"""Goes into the hash of an image: another where this module writes another from the same files."""


def load_operator(nodes: NodeImages, steps: Steps) -> str:
    """Have the operator's image on the nodes. Returns its name, whose tag is the hash of all that went in.

    Raises:
        LocalClusterError: the bundle has no wheels for this Python and this checkout's lock.
    """
    wheels = fetch_wheels(REPOSITORY / "requirements" / "operator.lock", steps, python=PYTHON)
    package = REPOSITORY / "operator" / "gpudask"
    base = content_key(texts=[_FORM, sys.version, str(interpreter()), wheels.name], relative_to=REPOSITORY)
    key = content_key(texts=[base], files=[package], relative_to=REPOSITORY)
    reference = f"localhost/gpudask/operator:{key}"
    images = cache_dir() / "images"
    archive = images / f"operator-{key}.tar"
    with exclusive(images):
        images.mkdir(exist_ok=True)
        if not archive.exists():
            with steps.step("Making the operator's image of this machine's Python"):
                layers = [_environment(images / f"python-{base}.tar", wheels), _package(archive, package)]
                unfinished = archive.with_suffix(".new")
                write_image(unfinished, reference=reference, layers=layers, config=_config())
                unfinished.replace(archive)
                layers[1].unlink()
    with steps.step(f"Loading {reference}"):
        _load(archive, nodes)
    return reference


def _environment(layer: Path, wheels: Path) -> Path:
    """Have the layer of Python and the packages; an edit of the operator does not remake it."""
    if layer.exists():
        return layer
    with tempfile.TemporaryDirectory(dir=layer.parent) as directory:
        packages = unpack_wheels(wheels, Path(directory) / "site")
        compile_packages(packages, _ENVIRONMENT)
        unfinished = layer.with_suffix(".new")
        write_layer(unfinished, {**python_files(packages), **below(packages, _ENVIRONMENT)}, _ACCOUNTS)
        unfinished.replace(layer)
    return layer


def _package(archive: Path, package: Path) -> Path:
    """Make the layer of the operator itself, beside the `archive` that it is for."""
    layer = archive.with_suffix(".layer")
    with tempfile.TemporaryDirectory(dir=archive.parent) as directory:
        copy = Path(directory) / "gpudask"
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
        compile_packages(copy, f"{_PACKAGE}/gpudask")
        write_layer(layer, below(copy, f"{_PACKAGE}/gpudask"))
    return layer


def _load(archive: Path, nodes: NodeImages) -> None:
    image = Loadable.from_archive(archive)
    if nodes.lacking(image.image_id, image.names):
        with tempfile.TemporaryDirectory(dir=archive.parent) as directory:
            thin = Path(directory) / "thin.tar"
            write_thin(archive, thin, reference=image.reference, present=nodes.common_blobs())
            nodes.load(Loadable(thin, image.reference, image.image_id))


def _config() -> dict[str, object]:
    return {
        "Entrypoint": [str(interpreter()), "-m", "gpudask"],
        "Env": [
            f"PATH={interpreter().parent}:/usr/local/bin:/usr/bin:/bin",
            f"PYTHONPATH={_PACKAGE}:{_ENVIRONMENT}",
            f"LD_LIBRARY_PATH={LIBRARIES}",
            "HOME=/tmp",
            "LANG=C.UTF-8",
            "PYTHONDONTWRITEBYTECODE=1",
            "PYTHONUNBUFFERED=1",
        ],
        "User": f"{USER}:{USER}",
        "WorkingDir": "/tmp",  # noqa: S108 - in the image, where the chart mounts a volume
        "ExposedPorts": {"8080/tcp": {}},
    }
