"""What every participant runs: a scheduler, small CPU workers, and one GPU worker that only a GPU task needs. Pure."""

from __future__ import annotations

from typing import Any

from gpudask.api import resource
from gpudask.desired import names, preload
from gpudask.desired.scheduler import preload_settings, scheduler_pod, services
from gpudask.desired.workers import worker_pod
from gpudask.preload import files
from local.demo.overlay import localize

Json = dict[str, Any]

FEW, MANY = 2, 10
_WORKER = {"cpu": "50m", "memory": "384Mi"}
# Ten small workers fit on one node; the GPU pool's size changes once, upwards.
_STAYS = "1h"
_TOKEN = "benchmark"  # noqa: S105 - nothing worth guarding: the floor's cluster lives for seconds


def manifest(name: str, namespace: str, workers: int) -> Json:
    """A GpuDaskCluster of so many CPU worker pods, and a GPU pool that begins empty."""
    body = localize(
        {
            "apiVersion": resource.API_VERSION,
            "kind": resource.KIND,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "image": "replaced",
                "pools": [
                    {"name": "cpu", "nthreads": 1, "replicas": workers},
                    {"name": "gpu", "gpu": {"count": 1}, "autoscale": {"min": 0, "max": 1}},
                ],
            },
        }
    )
    cpu, gpu = body["spec"]["pools"]
    cpu["resources"] = dict(_WORKER)
    gpu["autoscale"]["idleTimeout"] = _STAYS
    return body


class Rendered:
    """The objects that the operator would make from a manifest, without an owner: nothing collects them."""

    def __init__(self, body: Json) -> None:
        identity = {"uid": f"by-hand-{body['metadata']['name']}", "generation": 1}
        self._cluster = resource.parse(body | {"metadata": body["metadata"] | identity})
        self._files = files()

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self._cluster.name

    def base(self) -> list[Json]:
        """Service, ConfigMaps, and the scheduler pod."""
        cluster = self._cluster
        pod_name = names.scheduler_pod(cluster.name, cluster.uid, frozenset())
        objects = [
            *services(cluster),
            preload.preload(cluster.namespace, self._files, [cluster.shared_reference]),
            preload_settings(cluster, _TOKEN),
            scheduler_pod(cluster, pod_name, preload.name(self._files)),
        ]
        return [_unowned(item) for item in objects]

    def cpu_worker(self, number: int) -> Json:
        """CPU worker pod `number`."""
        return self._worker("cpu", number)

    def gpu_worker(self) -> Json:
        """The GPU worker pod."""
        return self._worker("gpu", 0)

    def _worker(self, pool_name: str, number: int) -> Json:
        pool = next(pool for pool in self._cluster.spec.pools if pool.name == pool_name)
        return _unowned(worker_pod(self._cluster, pool, number, "hand0"))


def dask_name(pod: Json) -> str:
    """The name under which the worker of a rendered pod registers."""
    return str(pod["metadata"]["annotations"][resource.ANNOTATION_DASK_NAME])


def _unowned(body: Json) -> Json:
    metadata = {key: value for key, value in body["metadata"].items() if key != "ownerReferences"}
    return body | {"metadata": metadata}
