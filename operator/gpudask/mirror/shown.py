"""The mirror for the stock Dask client: what it should show. What people mean by changing it is `mirror_wishes`'."""

from __future__ import annotations

from typing import Any

from gpudask.api.pool import Pool
from gpudask.api.resource import Cluster
from gpudask.api.spec import Override
from gpudask.mirror import objects as mirror
from gpudask.mirror.state import Mirrored
from gpudask.planning.sizes import active_override

Json = dict[str, Any]


def shown(cluster: Cluster, desired: dict[str, int], ready: dict[str, int], now: float) -> list[Json]:
    """The objects as they should be. By pool, `desired`: pods that it should have; `ready`: those that are.

    A worker group shows a size where somebody set one. Where the pool follows demand it shows none: then whatever
    anybody sets is a change, the size that the pool happens to have as well.
    """
    active = {pool.name: active_override(cluster.spec.overrides, pool.name, now) for pool in cluster.spec.pools}
    sizes = {pool.name: _set_size(pool, active[pool.name]) for pool in cluster.spec.pools}
    default = mirror.default_pool(cluster)
    size, override = sizes[default.name], active[default.name]
    number = desired.get(default.name, 0) if size is None else size
    objects = [
        mirror.dask_cluster(cluster, size=number, ready=ready[default.name]),
        *mirror.worker_groups(cluster, sizes=sizes, ready=ready),
    ]
    if override is not None and override.max is not None:
        objects.append(mirror.autoscaler(cluster, override.min or 0, override.max))
    return objects


def superfluous(cluster: Cluster, objects: tuple[Mirrored, ...], wanted: list[Json]) -> list[Mirrored]:
    """What is to be deleted: groups of removed pools, and an autoscaler whose limits hold no more."""
    known = {(body["kind"], body["metadata"]["name"]) for body in wanted}
    extra = [item for item in objects if (item.kind, item.name) not in known and item.kind != mirror.CLUSTER]
    return [item for item in extra if item.controller == cluster.owner_key or _is_our_autoscaler(cluster, item)]


def _is_our_autoscaler(cluster: Cluster, item: Mirrored) -> bool:
    return item.kind == mirror.AUTOSCALER and item.name == cluster.name and not item.controller


def _set_size(pool: Pool, override: Override | None) -> int | None:
    """The size that somebody set; None: it follows demand."""
    if override is not None:
        return override.replicas
    if pool.autoscale is not None:
        return None
    return 1 if pool.replicas is None else pool.replicas
