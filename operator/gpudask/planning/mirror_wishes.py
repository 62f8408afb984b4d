"""What people ask for by changing the mirror, as overrides of the cluster; and who else's object stands in the way."""

from __future__ import annotations

from typing import Any

from gpudask.api.pool import MAX_REPLICAS, Pool
from gpudask.api.resource import Cluster
from gpudask.api.spec import Override
from gpudask.desired import mirror
from gpudask.planning.mirrored import FOREIGN, Mirrored
from gpudask.planning.sizes import active_override

Json = dict[str, Any]
_BY_LENGTH = 128  # of an override's `by`


def overrides_wanted(
    cluster: Cluster, objects: tuple[Mirrored, ...], now: float, *, given_up: int | None = None
) -> dict[str, Json | None]:
    """By pool, the override that people asked for through the mirror; None: the one there is, is to go.

    Empty where they asked for nothing, or have it. Of several changes for one pool the last one counts. `given_up`:
    somebody deleted the autoscaler just now, while the default pool had so many pods; as with the stock operator it
    keeps them.
    """
    newest: dict[str, Mirrored] = {}
    for item in sorted((item for item in objects if item.set_by_person), key=lambda item: int(item.version)):
        pool = _pool(cluster, item)
        if pool is not None:
            newest[pool.name] = item
    pools = {pool.name: pool for pool in cluster.spec.pools}
    wishes = {name: _entry(pools[name], item) for name, item in newest.items()}
    default = mirror.default_pool(cluster).name
    override = active_override(cluster.spec.overrides, default, now)
    if given_up is not None and default not in wishes and override is not None and override.max is not None:
        by = f"deleting {mirror.AUTOSCALER} {cluster.name}"
        wishes[default] = {"pool": default, "replicas": given_up, "by": by}
    return {name: wish for name, wish in wishes.items() if not _granted(cluster.spec.overrides, name, wish, now)}


def with_overrides(overrides: list[Json], wanted: dict[str, Json | None]) -> list[Json]:
    """The list of the resource with these entries instead of its own for the same pools."""
    kept = [entry for entry in overrides if entry["pool"] not in wanted]
    return [*kept, *(entry for entry in wanted.values() if entry is not None)]


def in_the_way(cluster: Cluster, objects: tuple[Mirrored, ...]) -> str:
    """Why the mirror is left alone; empty: it is not. Another operator's objects are not fought over."""
    for item in objects:
        if item.foreign:
            return (
                f"{item.kind} {item.name} is handled by another operator, which left {FOREIGN} on it: remove the stock"
                " Dask operator, or switch the mirror off (mirror.enabled in the chart)"
            )
        if item.controller not in ("", cluster.owner_key) and (item.kind == mirror.CLUSTER or _pool(cluster, item)):
            uid = item.controller.rpartition("/")[2]
            return f"{item.kind} {item.name} belongs to an object with uid {uid}: delete it"
    return ""


def _pool(cluster: Cluster, item: Mirrored) -> Pool | None:
    if item.kind == mirror.WORKER_GROUP:
        return mirror.pool_of(cluster, item.name)
    return mirror.default_pool(cluster) if item.name == cluster.name else None


def _entry(pool: Pool, item: Mirrored) -> Json | None:
    by = f"{item.editor or 'somebody'} on {item.kind} {item.name}"[:_BY_LENGTH]
    if item.kind == mirror.AUTOSCALER:
        least, most = _limits(pool, item)
        return {"pool": pool.name, "min": least, "max": most, "by": by}
    return None if item.size is None else {"pool": pool.name, "replicas": item.size, "by": by}


def _limits(pool: Pool, item: Mirrored) -> tuple[int, int]:
    """Those given; else the pool's own; else none. One that is given moves the other, which is not."""
    own = pool.autoscale
    least = item.minimum if item.minimum is not None else own.min if own else 0
    most = item.maximum if item.maximum is not None else own.max if own else MAX_REPLICAS
    return (least, max(least, most)) if item.maximum is None else (min(least, most), most)


def _granted(overrides: list[Override], pool: str, wish: Json | None, now: float) -> bool:
    there = active_override(overrides, pool, now)
    if wish is None or there is None:
        return wish is None and there is None
    least = None if there.max is None else there.min or 0
    return (there.replicas, least, there.max) == (wish.get("replicas"), wish.get("min"), wish.get("max"))
