"""The overrides that follow from what people changed in a cluster's mirror.

A size set on a DaskWorkerGroup, or on the DaskCluster, which is the default pool's, becomes `replicas` of that pool's
override; a size taken away takes the override away. Limits of a DaskAutoscaler become `min` and `max` of the default
pool's; once it is deleted the pool keeps the size that it has, as with the stock operator.

Limits in the annotation `gpudask.dev/autoscale` are part of the pool (`stock.served.merged_spec`). They hold until a
size is set, and again once that is taken away, or they change; once they are taken away, the pool keeps its size.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpudask.api import Json
from gpudask.api.pool import MAX_REPLICAS, Pool
from gpudask.api.resource import Cluster
from gpudask.api.spec import Override
from gpudask.mirror import objects
from gpudask.mirror.state import MirrorObject, pool_of
from gpudask.planning.overrides import active_override

_BY_LENGTH = 128  # of an override's `by`


def requested_overrides(
    cluster: Cluster,
    items: tuple[MirrorObject, ...],
    now: float,
    *,
    sizes: Mapping[str, int] | None = None,
    kept_size: int | None = None,
) -> dict[str, Json | None]:
    """By pool, the override that people asked for through the mirror; None: the present one is to be removed.

    Empty where they asked for nothing new. Of several changes for one pool the last one counts. `sizes`: the pods that
    each pool should have had, as last decided. `kept_size`: somebody deleted the autoscaler just now, while the default
    pool had so many pods.
    """
    newest: dict[str, MirrorObject] = {}
    for item in sorted((item for item in items if item.set_by_person), key=lambda item: int(item.version)):
        pool = pool_of(cluster, item)
        if pool is not None:
            newest[pool.name] = item
    pools = {pool.name: pool for pool in cluster.spec.pools}
    requested = {name: _entry(pools[name], item, (sizes or {}).get(name, 1)) for name, item in newest.items()}
    default, overrides = objects.default_pool(cluster).name, cluster.spec.overrides
    override = active_override(overrides, default, now)
    if kept_size is not None and default not in requested and override is not None and override.max is not None:
        by = f"deleting {objects.AUTOSCALER} {cluster.name}"
        requested[default] = {"pool": default, "replicas": kept_size, "by": by}
    return {name: entry for name, entry in requested.items() if not _is_in_force(overrides, name, entry, now)}


def with_overrides(overrides: list[Json], requested: dict[str, Json | None]) -> list[Json]:
    """The resource's overrides, with these entries instead of its own for the same pools."""
    kept = [entry for entry in overrides if entry["pool"] not in requested]
    return [*kept, *(entry for entry in requested.values() if entry is not None)]


def _entry(pool: Pool, item: MirrorObject, size: int) -> Json | None:
    """The override that the change of `item` asks for; None: none. `size`: the pods that `pool` had, as decided."""
    by = f"{item.editor or 'somebody'} on {item.kind} {item.name}"[:_BY_LENGTH]
    if item.kind == objects.AUTOSCALER:
        least, most = _limits(pool, item)
        return {"pool": pool.name, "min": least, "max": most, "by": by}
    if item.limits and item.limits_changed:
        return None
    if item.size is None and item.limits_removed:
        return {"pool": pool.name, "replicas": size, "by": by}
    return None if item.size is None else {"pool": pool.name, "replicas": item.size, "by": by}


def _limits(pool: Pool, item: MirrorObject) -> tuple[int, int]:
    """The limits given; else the pool's own; else none. A given one moves the other, where that is not given."""
    own = pool.autoscale
    least = item.minimum if item.minimum is not None else own.min if own else 0
    most = item.maximum if item.maximum is not None else own.max if own else MAX_REPLICAS
    return (least, max(least, most)) if item.maximum is None else (min(least, most), most)


def _is_in_force(overrides: list[Override], pool: str, entry: Json | None, now: float) -> bool:
    """Whether the pool has this very override already; for no entry, whether it has none."""
    there = active_override(overrides, pool, now)
    if entry is None or there is None:
        return entry is None and there is None
    least = None if there.max is None else there.min or 0
    return (there.replicas, least, there.max) == (entry.get("replicas"), entry.get("min"), entry.get("max"))
