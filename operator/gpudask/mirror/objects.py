"""Renders a cluster as the `kubernetes.dask.org` objects that the stock Dask client reads: docs/stock-client.md.

Only what that client reads is in them. Each has an annotation with the size or the limits that the operator wrote,
`1` or `1..8`: where the object's own differ from it, a person changed them (`state`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpudask.api import Json, resource
from gpudask.api.pool import Pool
from gpudask.api.resource import ANNOTATION_MIRRORED, DEFAULT_GROUP, STOCK_GROUP, STOCK_JOB_KIND, Cluster
from gpudask.api.spec import Override
from gpudask.desired import names, pod
from gpudask.planning.overrides import active_override
from gpudask.stock.autoscale import parse_limits
from gpudask.stock.served import pool_of_group

GROUP = STOCK_GROUP
API_VERSION = f"{GROUP}/v1"
CLUSTER, WORKER_GROUP, AUTOSCALER = "DaskCluster", "DaskWorkerGroup", "DaskAutoscaler"
JOB = STOCK_JOB_KIND  # which mirrors nothing: people make it
KINDS = (CLUSTER, WORKER_GROUP, AUTOSCALER, JOB)
CATEGORY = "gpudask"
_RUNNING, _SUSPENDED = "Running", "Suspended"


@dataclass(frozen=True)
class MadeByPeople:
    """What people made of one cluster. `groups`: worker groups by pool.

    `limits`: between which a pool follows demand by the annotation of the object with this kind and name, as `0..8`.
    """

    groups: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[tuple[str, str], str] = field(default_factory=dict)


def render(
    cluster: Cluster,
    desired: dict[str, int],
    ready: dict[str, int],
    now: float,
    made_by_people: MadeByPeople | None = None,
) -> list[Json]:
    """Render the objects. By pool, `desired`: pods that it should have; `ready`: those that are.

    `made_by_people`: in a cluster that serves a DaskCluster. Of these, sizes and status alone are the operator's.

    A worker group has a size where somebody set one. Where the pool follows demand it has none: then whatever anybody
    sets is a change, even the size that the pool happens to have.
    """
    active = {pool.name: active_override(cluster.spec.overrides, pool.name, now) for pool in cluster.spec.pools}
    sizes = {pool.name: _set_size(pool, active[pool.name]) for pool in cluster.spec.pools}
    default = default_pool(cluster)
    size, override = sizes[default.name], active[default.name]
    number = desired.get(default.name, 0) if size is None else size
    made = made_by_people or MadeByPeople()
    theirs, asked = made.groups, made.limits
    objects = [
        dask_cluster(cluster, size=number, ready=ready[default.name]),
        *(
            _worker_group(cluster, p, name, sizes[p.name], ready[p.name])
            for name, p in _groups(cluster).items()
            if p.name not in theirs
        ),
    ]
    if cluster.stock_uid:
        own = asked.get((CLUSTER, cluster.name), "")
        objects[0] = _size_of(cluster, CLUSTER, cluster.name, number, objects[0]["status"], limits=own)
        pools = {pool.name: pool for pool in cluster.spec.pools}
        for pool, name in theirs.items():
            shown, own = sizes[pool], asked.get((WORKER_GROUP, name), "")
            if shown is None and not own:
                shown = desired.get(pool, 0)
            status = {"replicas": ready[pools[pool].name]}
            objects.append(_size_of(cluster, WORKER_GROUP, name, shown, status, limits=own))
    if override is not None and override.max is not None:
        objects.append(_autoscaler(cluster, override.min or 0, override.max))
    return objects


def default_pool(cluster: Cluster) -> Pool:
    """The pool that the stock client changes when it names none."""
    pools = {pool.name: pool for pool in cluster.spec.pools}
    return pools[resource.default_pool({name: pool.gpu is not None for name, pool in pools.items()})]


def pool_of(cluster: Cluster, group: str, *, made_by_person: bool = False) -> Pool | None:
    """The pool of the worker group `group`, which mirrors it, or which somebody made; None: there is none."""
    if made_by_person:
        name = pool_of_group(cluster.name, group)
        return next((pool for pool in cluster.spec.pools if pool.name == name), None)
    return _groups(cluster).get(group)


def is_theirs(body: Json) -> bool:
    """Whether a rendered object is somebody's, which is never created."""
    return body["kind"] != AUTOSCALER and "mirrors" not in body["spec"]


def _groups(cluster: Cluster) -> dict[str, Pool]:
    """By the worker group's name, its pool: one for each pool, and one called `default` for the default pool.

    In a cluster that serves a DaskCluster the latter alone: the others are people's, and go when these delete them.
    """
    if cluster.stock_uid:
        return {names.worker_group(cluster.name, DEFAULT_GROUP): default_pool(cluster)}
    by_pool = {names.worker_group(cluster.name, pool.name): pool for pool in cluster.spec.pools}
    return {names.worker_group(cluster.name, DEFAULT_GROUP): default_pool(cluster)} | by_pool


def dask_cluster(cluster: Cluster, *, size: int, ready: int) -> Json:
    """Render the DaskCluster. `size`: pods of the default pool; `ready`: those that are."""
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
    return _object(cluster, CLUSTER, cluster.name, spec, value=size_value(size)) | {"status": status}


def _worker_group(cluster: Cluster, pool: Pool, name: str, size: int | None, ready: int) -> Json:
    """Render the DaskWorkerGroup. `size`: pods that somebody set, None where the pool follows demand."""
    worker = {"replicas": size, **_template(cluster, pool)}
    spec = {"mirrors": pool.name, "cluster": cluster.name, "worker": worker}
    return _object(cluster, WORKER_GROUP, name, spec, value=size_value(size)) | {"status": {"replicas": ready}}


def _autoscaler(cluster: Cluster, minimum: int, maximum: int) -> Json:
    """Render the DaskAutoscaler: limits that somebody set for the default pool, in pods."""
    spec = {"cluster": cluster.name, "minimum": minimum, "maximum": maximum}
    return _object(cluster, AUTOSCALER, cluster.name, spec, value=limits_value(minimum, maximum))


def _size_of(cluster: Cluster, kind: str, name: str, size: int | None, status: Json, *, limits: str) -> Json:
    """The operator's part of an object that somebody made: its size, in pods, and its status.

    `limits`: that its annotation asks for; empty: none.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "annotations": {ANNOTATION_MIRRORED: size_value(size, limits)},
        },
        "spec": {"worker": {"replicas": size}},
        "status": status,
    }


def size_value(size: int | None, limits: str = "") -> str:
    """The annotation's value for a size in pods, and the limits that somebody asks for; empty: none is set.

    `3`, `0..8` or, where a size was set on what follows demand otherwise, `3 0..8`.
    """
    return " ".join(part for part in ("" if size is None else str(size), limits) if part)


def limits_in(value: str) -> str:
    """The limits in what `size_value` returned, which somebody may have changed; empty: none."""
    for part in value.split():
        with contextlib.suppress(ValueError):
            return str(parse_limits(part))
    return ""


def limits_value(minimum: int | None, maximum: int | None) -> str:
    """The annotation's value for limits in pods."""
    return f"{minimum}..{maximum}"


def _set_size(pool: Pool, override: Override | None) -> int | None:
    """The size that somebody set; None: it follows demand."""
    if override is not None:
        return override.replicas
    if pool.autoscale is not None:
        return None
    return 1 if pool.replicas is None else pool.replicas


def _object(cluster: Cluster, kind: str, name: str, spec: Json, *, value: str) -> Json:
    meta = pod.metadata(cluster, name, kind.removeprefix("Dask").lower())
    meta["annotations"] = {ANNOTATION_MIRRORED: value}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": meta, "spec": spec}


def _template(cluster: Cluster, pool: Pool) -> Json:
    requested = pod.resources(pool.resources)
    if pool.gpu is not None:
        requested.setdefault("limits", {})[pool.gpu.resource_name] = str(pool.gpu.count)
    container = {"name": "worker", "image": pool.image or cluster.spec.image, "resources": requested}
    return {"spec": {"containers": [container]}}
