"""The plan of one pass, for the whole cluster."""

from __future__ import annotations

from dataclasses import replace

from gpudask.api.spec import Spec
from gpudask.planning import idleness, limits, sizes
from gpudask.planning.actions import Plan
from gpudask.planning.creations import limited
from gpudask.planning.fallback import lent, own_part, plan_fallback, with_guests
from gpudask.planning.markers import guarded, markers_wake_after, plan_markers
from gpudask.planning.observed import Observation
from gpudask.planning.pools import plan_pool
from gpudask.planning.removed import plan_removed
from gpudask.planning.rooms import rooms
from gpudask.planning.scheduler import plan_scheduler, scheduler_wake_after
from gpudask.planning.troubles import stays_deleted_after
from gpudask.scaling.assignment import assign


def plan(seen: Observation) -> Plan:
    """What to do now. Done twice with the same observation it says the same; a cluster being deleted needs nothing."""
    if seen.cluster.deleting:
        return Plan()
    seen = limits.in_force(seen)
    spec = seen.cluster.spec
    requirements = seen.demand.requirements if seen.demand else ()
    assignment = assign(_in_force(seen), tuple(own_part(requirement) for requirement in requirements), rooms(seen))
    fallbacks = {pool.name: plan_fallback(seen, pool) for pool in spec.pools}
    shares = with_guests(assignment.shares, fallbacks.values())
    served = {requirement.resources for fallback in fallbacks.values() for requirement in fallback.served}
    unserved = tuple(requirement for requirement in assignment.unserved if requirement.resources not in served)
    pools = limited({pool.name: plan_pool(seen, pool, shares[pool.name]) for pool in spec.pools})
    removed = plan_removed(seen)
    moments = [scheduler_wake_after(seen), markers_wake_after(seen), idleness.idle_wake_after(seen)]
    moments.append(stays_deleted_after(seen))
    moments += [p.wake_after_seconds for p in pools.values()]
    moments += [fallback.wake_after_seconds for fallback in fallbacks.values()]
    wakes = [moment for moment in moments if moment is not None]
    return Plan(
        scheduler=(*plan_scheduler(seen), *removed),
        pools=pools,
        assignment=replace(assignment, unserved=unserved),
        fallbacks={name: fallback.to for name, fallback in fallbacks.items() if fallback.to},
        offers=lent(spec.pools, fallbacks),
        wake_after_seconds=min(wakes, default=None),
        markers=plan_markers(seen),
        guarded=guarded(seen, seen.scheduler) if seen.scheduler is not None else None,
        delete_why=idleness.why_delete(seen),
    )


def _in_force(seen: Observation) -> Spec:
    """The spec without the overrides that have expired: a pool that one of them held at zero may have pods again."""
    spec = seen.cluster.spec
    names = {override.pool for override in spec.overrides}
    active = [sizes.active_override(spec.overrides, name, seen.wall_time) for name in sorted(names)]
    return spec.model_copy(update={"overrides": [override for override in active if override is not None]})
