"""`spec.overrides`: sizes and limits by people and clients, for a while, in place of the manifest's."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace

from gpudask.api.pool import Autoscale, Pool
from gpudask.api.spec import Override
from gpudask.planning.observed.observation import Observation
from gpudask.scaling.sizing import Size


def active_override(overrides: list[Override], pool: str, now: float) -> Override | None:
    """The override of `pool` that has not expired; `now` by the wall clock, as people set it."""
    return next((o for o in overrides if o.pool == pool and (o.until is None or o.until.timestamp() > now)), None)


@dataclass(frozen=True, slots=True)
class InForce:
    """An observation with the overrides applied to its spec. `requeue_after`: until the next one expires."""

    observation: Observation
    requeue_after: float | None


def in_force(observation: Observation) -> InForce:
    """`observation` without the overrides that have expired, each pool with the limits that hold for it now.

    The spec as it is written stays what `Observation.written` says.
    """
    spec, now = observation.cluster.spec, observation.wall_time
    active = {pool.name: active_override(spec.overrides, pool.name, now) for pool in spec.pools}
    kept = [override for override in spec.overrides if active.get(override.pool, override) is override]
    pools = [_limited(pool, active[pool.name]) for pool in spec.pools]
    ends = [each.until.timestamp() - now for each in active.values() if each is not None and each.until is not None]
    requeue_after = min(ends, default=None)
    is_same = len(kept) == len(spec.overrides) and all(map(operator.is_, pools, spec.pools))
    if is_same:  # the very spec, which others know by its identity
        return InForce(observation, requeue_after)
    cluster = replace(observation.cluster, spec=spec.model_copy(update={"overrides": kept, "pools": pools}))
    return InForce(replace(observation, cluster=cluster, wanted=observation.written), requeue_after)


def set_by(override: Override | None, size: Size) -> str:
    """The author of the size, for the status: with autoscaling also of its limits, where that is an `override`."""
    if size.set_by != "autoscale" or override is None:
        return size.set_by
    return f"autoscale, limits by {override.by or 'an override'}"


def _limited(pool: Pool, override: Override | None) -> Pool:
    """`pool` within the limits of `override`. The durations of its `autoscale` stay, if it has one."""
    if override is None or override.max is None:
        return pool
    counts = {"min": override.min or 0, "max": override.max}
    kept = pool.autoscale.model_dump() if pool.autoscale else {}
    return pool.model_copy(update={"replicas": None, "autoscale": Autoscale.model_validate(kept | counts)})
