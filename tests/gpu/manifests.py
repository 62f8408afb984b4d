"""GpuDaskClusters for a machine with GPUs: pods of the image dask-host, run by the machine's own Python."""

from __future__ import annotations

from gpudask.api import Json

from typing import Any

from local.images.offline_worker import WORKER_IMAGE, pod_template


IDLE_TIMEOUT = "5s"


def cluster(name: str, *pools: Json, **spec: Any) -> Json:
    """A GpuDaskCluster with these pools."""
    return {
        "apiVersion": "gpudask.dev/v1alpha1",
        "kind": "GpuDaskCluster",
        "metadata": {"name": name},
        "spec": {
            "image": WORKER_IMAGE,
            "imagePullPolicy": "Never",
            "template": _template(),
            # Programs that use NCCL leave NVLink's multicast alone: on a shared host it is not this machine's only.
            "env": [{"name": "NCCL_NVLS_ENABLE", "value": "0"}],
            "pools": list(pools),
            **spec,
        },
    }


def cpu(**fields: Any) -> Json:
    """A CPU pool of one pod with two threads."""
    return {"name": "cpu", "replicas": 1, "nthreads": 2, "resources": {"cpu": "2", "memory": "8Gi"}, **fields}


def gpu(*, count: int = 1, devices: Json | None = None, **fields: Any) -> Json:
    """A GPU pool; `fields` say its size, `devices` what else its block `gpu` has."""
    block = {"count": count, **(devices or {})}
    return {"name": "gpu", "gpu": block, "resources": {"cpu": "1", "memory": "24Gi"}, **fields}


def following(most: int) -> Json:
    """Autoscaling from zero to `most` pods, as fast as it goes."""
    return {"min": 0, "max": most, "idleTimeout": IDLE_TIMEOUT, "targetDuration": "1s"}


def holding_gpus(name: str, count: int, **limits: str) -> Json:
    """A pod, of no cluster, that holds `count` GPUs, and what else it is given."""
    spec = _template()["spec"]
    (container,) = spec["containers"]
    container |= {
        "image": WORKER_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/usr/bin/sleep", "600"],
        "resources": {"limits": {"nvidia.com/gpu": str(count), **limits}},
    }
    metadata = {"name": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, "restartPolicy": "Never"}}


def _template() -> Json:
    # A Dask worker that is told to end while it closes anyway hangs until it is killed.
    return {"spec": {**pod_template()["spec"], "terminationGracePeriodSeconds": 5}}
