"""The plan of one pass, for the whole cluster."""

from __future__ import annotations

from gpudask.planning.actions import Plan
from gpudask.planning.observed import Observation
from gpudask.planning.pools import plan_pool
from gpudask.planning.removed import plan_removed
from gpudask.planning.scheduler import plan_scheduler
from gpudask.scaling.assignment import Share, assign


def plan(seen: Observation) -> Plan:
    """What to do now. Done twice with the same observation it says the same; a cluster being deleted needs nothing."""
    if seen.cluster.deleting:
        return Plan()
    spec = seen.cluster.spec
    assignment = assign(spec, seen.demand.requirements if seen.demand else ())
    pools = {pool.name: plan_pool(seen, pool, assignment.shares.get(pool.name, Share())) for pool in spec.pools}
    removed = plan_removed(seen)
    wakes = [p.wake_after_seconds for p in pools.values() if p.wake_after_seconds is not None]
    return Plan(
        scheduler=(*plan_scheduler(seen), *removed),
        pools=pools,
        assignment=assignment,
        wake_after_seconds=min(wakes, default=None),
    )
