"""A cluster as the `kubernetes.dask.org` objects that the stock Dask client reads: docs/stock-client.md.

Only what that client reads is in them. Which size each shows is `planning`'s.
"""

from __future__ import annotations

from typing import Any

from gpudask.api import stock
from gpudask.api.pool import Pool
from gpudask.api.resource import ANNOTATION_MIRRORED, Cluster
from gpudask.api.stock import DEFAULT_GROUP
from gpudask.desired import names, pod

Json = dict[str, Any]

GROUP = "kubernetes.dask.org"
API_VERSION = f"{GROUP}/v1"
CLUSTER, WORKER_GROUP, AUTOSCALER = "DaskCluster", "DaskWorkerGroup", "DaskAutoscaler"
KINDS = (CLUSTER, WORKER_GROUP, AUTOSCALER)
CATEGORY = "gpudask"
_RUNNING, _SUSPENDED = "Running", "Suspended"


def default_pool(cluster: Cluster) -> Pool:
    """The pool that the client means when it names none."""
    pools = {pool.name: pool for pool in cluster.spec.pools}
    return pools[stock.default_pool({name: pool.gpu is not None for name, pool in pools.items()})]


def pool_of(cluster: Cluster, group: str) -> Pool | None:
    """The pool that the worker group `group` mirrors; None: none."""
    by_group = {names.worker_group(cluster.name, pool.name): pool for pool in cluster.spec.pools}
    return {names.worker_group(cluster.name, DEFAULT_GROUP): default_pool(cluster), **by_group}.get(group)


def dask_cluster(cluster: Cluster, *, size: int, ready: int) -> Json:
    """The DaskCluster. `size`: pods of the default pool; `ready`: those that are."""
    section, pool = cluster.spec.scheduler, default_pool(cluster)
    container = {
        "name": "scheduler",
        "image": section.image or cluster.spec.image,
        "args": ["dask", "scheduler", *section.extra_args],
    }
    spec = {
        "mirrors": cluster.name,
        "worker": {"replicas": size, **_template(cluster, pool)},
        "scheduler": {"spec": {"containers": [container]}},
    }
    phase = _SUSPENDED if cluster.spec.suspend else _RUNNING
    status = {"phase": phase, "replicas": ready}
    return _object(cluster, CLUSTER, cluster.name, spec, said=str(size)) | {"status": status}


def worker_groups(cluster: Cluster, *, sizes: dict[str, int | None], ready: dict[str, int]) -> list[Json]:
    """A DaskWorkerGroup for each pool, and one called `default` for the pool that this means.

    By pool, `sizes`: pods, None where it follows demand; `ready`: pods that are.
    """
    groups = {names.worker_group(cluster.name, DEFAULT_GROUP): default_pool(cluster)}
    groups |= {names.worker_group(cluster.name, pool.name): pool for pool in cluster.spec.pools}
    return [_worker_group(cluster, pool, name, sizes[pool.name], ready[pool.name]) for name, pool in groups.items()]


def _worker_group(cluster: Cluster, pool: Pool, name: str, size: int | None, ready: int) -> Json:
    worker = {"replicas": size, **_template(cluster, pool)}
    spec = {"mirrors": pool.name, "cluster": cluster.name, "worker": worker}
    said = "" if size is None else str(size)
    return _object(cluster, WORKER_GROUP, name, spec, said=said) | {"status": {"replicas": ready}}


def autoscaler(cluster: Cluster, minimum: int, maximum: int) -> Json:
    """The DaskAutoscaler: limits that somebody set for the default pool, in pods."""
    spec = {"cluster": cluster.name, "minimum": minimum, "maximum": maximum}
    return _object(cluster, AUTOSCALER, cluster.name, spec, said=limits(minimum, maximum))


def limits(minimum: int | None, maximum: int | None) -> str:
    """Limits in one word, as the annotation has them."""
    return f"{minimum}..{maximum}"


def _object(cluster: Cluster, kind: str, name: str, spec: Json, *, said: str) -> Json:
    meta = pod.metadata(cluster, name, kind.removeprefix("Dask").lower())
    meta["annotations"] = {ANNOTATION_MIRRORED: said}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": meta, "spec": spec}


def _template(cluster: Cluster, pool: Pool) -> Json:
    requested = pod.resources(pool.resources)
    if pool.gpu is not None:
        requested.setdefault("limits", {})[pool.gpu.resource_name] = str(pool.gpu.count)
    container = {"name": "worker", "image": pool.image or cluster.spec.image, "resources": requested}
    return {"spec": {"containers": [container]}}
