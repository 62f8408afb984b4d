"""An image for Dask's pods where nothing can be fetched: a bundle's packages, to be run by the machine's Python.

That Python, with CuPy and whatever else it has, comes into the pods by hostPath: `pod_template` says how.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from local.bundle.activation import worker_sites
from local.host.progress import Steps
from local.images.host_python import compile_packages
from local.images.layers import USER, below, write_image, write_layer
from local.images.node_images import Loadable, NodeImages
from local.layout import cache_dir
from local.nodes.devices import count_gpus, driver_libraries

WORKER_IMAGE = "localhost/gpudask/dask-host:dev"
_PACKAGES = "/gpudask/packages"
_ACCOUNTS = {"/etc/passwd": f"dask:x:{USER}:{USER}::/tmp:/bin/sh\n", "/etc/group": f"dask:x:{USER}:\n"}
_TOOLKIT = Path("/usr/local/cuda")
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/opt")


def load_worker(nodes: NodeImages, bundle: Path, steps: Steps) -> str:
    """Have the image on the nodes. Returns its name.

    Raises:
        LocalClusterError: the bundle has no packages for this Python, or the driver's libraries are missing.
    """
    with (
        steps.step(f"Loading {WORKER_IMAGE}"),
        tempfile.TemporaryDirectory(dir=cache_dir() / "images") as directory,
    ):
        layer, archive = Path(directory) / "layer.tar", Path(directory) / "image.tar"
        packages: dict[str, Path] = {}
        for place in worker_sites(bundle):
            compile_packages(place, _PACKAGES)
            packages |= below(place, _PACKAGES)
        write_layer(layer, packages, _ACCOUNTS)
        write_image(archive, reference=WORKER_IMAGE, layers=[layer], config=_config(sys.executable))
        nodes.load(Loadable.from_archive(archive))
    return WORKER_IMAGE


def pod_template(python: str = sys.executable) -> dict[str, Any]:
    """Tell what a GpuDaskCluster's `template` has to say: the directories of the machine that its pods look into."""
    python_home = {str(Path(python).parent.parent), str(Path(python).resolve().parent.parent), sys.base_prefix}
    wanted = {place for place in {*_SYSTEM, *python_home} if Path(place).is_dir()}
    places = sorted(place for place in wanted if not any(str(above) in wanted for above in Path(place).parents))
    return {
        "spec": {
            "containers": [
                {
                    "name": "dask",
                    "volumeMounts": [
                        {"name": _volume(place), "mountPath": place, "readOnly": True} for place in places
                    ],
                }
            ],
            "volumes": [{"name": _volume(place), "hostPath": {"path": place}} for place in places],
        }
    }


def template_text() -> str:
    """Write `pod_template` as JSON, which YAML takes as it is."""
    return json.dumps(pod_template())


def _volume(place: str) -> str:
    return f"host{place}".replace("/", "-").replace(".", "-").replace("_", "-").lower()


def _config(python: str) -> dict[str, Any]:
    libraries = [f"LD_LIBRARY_PATH={driver_libraries()}"] if count_gpus() else []
    # Where the machine has CUDA's toolkit, its compiler's library is found by this: wheels seldom bring it. Resolved,
    # because Debian's alternatives make it a link through /etc, which pods do not see.
    toolkit = [f"CUDA_HOME={_TOOLKIT.resolve()}"] if (_TOOLKIT / "nvvm").is_dir() else []
    return {
        # Pods of a cluster say `dask worker ...`: it becomes `python -m dask worker ...`.
        "Entrypoint": [python, "-m"],
        "Env": [
            f"PATH={Path(python).parent}:/usr/local/bin:/usr/bin:/bin",
            f"PYTHONPATH={_PACKAGES}",
            *libraries,
            *toolkit,
            "HOME=/tmp",
            "LANG=C.UTF-8",
            "PYTHONDONTWRITEBYTECODE=1",
            "PYTHONUNBUFFERED=1",
        ],
        "User": f"{USER}:{USER}",
        "WorkingDir": "/tmp",  # noqa: S108 - in the image
    }
