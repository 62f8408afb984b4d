"""The plan of one pass, for the whole cluster."""

from __future__ import annotations

from gpudask.api.spec import Spec
from gpudask.planning import sizes
from gpudask.planning.actions import Plan
from gpudask.planning.markers import guarded, markers_wake_after, plan_markers
from gpudask.planning.observed import Observation
from gpudask.planning.pools import plan_pool
from gpudask.planning.removed import plan_removed
from gpudask.planning.rooms import rooms
from gpudask.planning.scheduler import plan_scheduler, scheduler_wake_after
from gpudask.scaling.assignment import Share, assign


def plan(seen: Observation) -> Plan:
    """What to do now. Done twice with the same observation it says the same; a cluster being deleted needs nothing."""
    if seen.cluster.deleting:
        return Plan()
    spec = seen.cluster.spec
    assignment = assign(_in_force(seen), seen.demand.requirements if seen.demand else (), rooms(seen))
    pools = {pool.name: plan_pool(seen, pool, assignment.shares.get(pool.name, Share())) for pool in spec.pools}
    removed = plan_removed(seen)
    moments = [scheduler_wake_after(seen), markers_wake_after(seen), *(p.wake_after_seconds for p in pools.values())]
    wakes = [moment for moment in moments if moment is not None]
    return Plan(
        scheduler=(*plan_scheduler(seen), *removed),
        pools=pools,
        assignment=assignment,
        wake_after_seconds=min(wakes, default=None),
        markers=plan_markers(seen),
        guarded=guarded(seen, seen.scheduler) if seen.scheduler is not None else None,
    )


def _in_force(seen: Observation) -> Spec:
    """The spec without the overrides that have expired: a pool that one of them held at zero may have pods again."""
    spec = seen.cluster.spec
    names = {override.pool for override in spec.overrides}
    active = [sizes.active_override(spec.overrides, name, seen.now) for name in sorted(names)]
    return spec.model_copy(update={"overrides": [override for override in active if override is not None]})
