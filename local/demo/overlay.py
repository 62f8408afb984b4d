"""An example's manifest, changed for the local cluster: images that were built here, little memory, no device.

Pure. What a GPU pool needs to run without a GPU stands here and nowhere else: the operator knows nothing of it.
"""

from __future__ import annotations

import copy
from typing import Any

Manifest = dict[str, Any]
IMAGE = "localhost/gpudask/dask:dev"
IDLE_TIMEOUT = "10s"
_CPU = "100m"
_POD_MEBIBYTES = 512
# dask-cuda's parent process, then a nanny's child for each GPU; a pod of one GPU is one process, and has room.
_GPU_PARENT_MEBIBYTES = 384
_GPU_WORKER_MEBIBYTES = 512


def localize(manifest: Manifest) -> Manifest:
    """`manifest` as it runs on the local cluster: two small nodes, stand-in GPUs. The argument is left alone."""
    result = copy.deepcopy(manifest)
    spec = result["spec"]
    spec |= {"image": IMAGE, "imagePullPolicy": "Never"}
    scheduler = spec.setdefault("scheduler", {})
    scheduler.pop("image", None)
    scheduler["resources"] = {"cpu": _CPU, "memory": f"{_POD_MEBIBYTES}Mi"}
    for pool in spec["pools"]:
        _localize_pool(pool)
    return result


def without_devices(manifest: Manifest) -> Manifest:
    """`manifest` for nodes whose GPUs are stand-ins: its GPU pools ask no driver. The argument is left alone."""
    result = copy.deepcopy(manifest)
    for pool in result["spec"]["pools"]:
        _take_devices(pool)
    return result


def _localize_pool(pool: Manifest) -> None:
    pool.pop("image", None)
    gpus = pool["gpu"].get("count", 1) if "gpu" in pool else 0
    mebibytes = _GPU_PARENT_MEBIBYTES + gpus * _GPU_WORKER_MEBIBYTES if gpus else _POD_MEBIBYTES
    pool["resources"] = {"cpu": _CPU, "memory": f"{mebibytes}Mi"}
    pool.setdefault("nthreads", 1)
    if "autoscale" in pool:
        pool["autoscale"]["idleTimeout"] = IDLE_TIMEOUT
    _take_devices(pool)


def _take_devices(pool: Manifest) -> None:
    if "gpu" in pool and pool["gpu"].get("launcher") != "dask":
        pool["env"] = _merged(pool.get("env", []), _without_device(pool["gpu"].get("count", 1)))


def _without_device(gpus: int) -> dict[str, str]:
    """dask-cuda's own switch: it starts one worker for each index, and asks no driver about them."""
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(str(index) for index in range(gpus)),
        "DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC": "1",
    }


def _merged(env: list[Manifest], values: dict[str, str]) -> list[Manifest]:
    kept = [entry for entry in env if entry["name"] not in values]
    return kept + [{"name": name, "value": value} for name, value in values.items()]
