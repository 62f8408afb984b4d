"""Limits of autoscaling that people and clients set (`KubeCluster.adapt`): they stand in for the manifest's."""

from __future__ import annotations

from dataclasses import replace

from gpudask.api.pool import Autoscale, Pool
from gpudask.api.spec import Override
from gpudask.planning.observed import Observation
from gpudask.planning.sizes import active_override
from gpudask.scaling.sizing import Size


def in_force(seen: Observation) -> Observation:
    """`seen`, in which each pool has the limits that hold for it now: an override's, else its manifest's."""
    spec = seen.cluster.spec
    pools = [_limited(pool, active_override(spec.overrides, pool.name, seen.wall_time)) for pool in spec.pools]
    if all(now is before for now, before in zip(pools, spec.pools, strict=True)):
        return seen
    return replace(seen, cluster=replace(seen.cluster, spec=spec.model_copy(update={"pools": pools})))


def set_by(seen: Observation, pool: Pool, size: Size) -> str:
    """Who set the size, for the status: with autoscaling also who set its limits, where that was an override."""
    override = active_override(seen.cluster.spec.overrides, pool.name, seen.wall_time)
    if size.set_by != "autoscale" or override is None:
        return size.set_by
    return f"autoscale, limits by {override.by or 'an override'}"


def _limited(pool: Pool, override: Override | None) -> Pool:
    """The times of the manifest's autoscaling stay; a pool that has none gets the defaults."""
    if override is None or override.max is None:
        return pool
    counts = {"min": override.min or 0, "max": override.max}
    kept = pool.autoscale.model_dump() if pool.autoscale else {}
    return pool.model_copy(update={"replicas": None, "autoscale": Autoscale.model_validate(kept | counts)})
