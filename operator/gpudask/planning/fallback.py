"""`fallback`: which pools' workers offer the resources of a pool that has no workers, and their demand meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpudask.api.pool import Pool
from gpudask.api.spec import Spec
from gpudask.planning.actions import soonest
from gpudask.planning.observed.observation import Observation
from gpudask.planning.pool_view import PoolView
from gpudask.scaling.assignment import Share, falls_back, may_exist, slots_per_pod
from gpudask.scaling.demand import Requirement

FEATURE = "offers"


@dataclass(frozen=True, slots=True)
class FallbackPlan:
    """The decision for one pool. `served`: its tasks that run on other pools meanwhile.

    `added_demand`: the same tasks as demand of other pools: by pool, each of the first that could serve them.
    """

    to: tuple[str, ...] = ()
    served: frozenset[Requirement] = frozenset()
    added_demand: tuple[tuple[str, Requirement, Share], ...] = ()
    requeue_after: float | None = None


def plan_fallback(view: PoolView) -> FallbackPlan:
    """The decision for the pool. Whether it falls back already, the scheduler knows: the operator needs no memory."""
    observation, pool = view.observation, view.pool
    spec, demand = observation.cluster.spec, observation.demand
    if pool.fallback is None or demand is None or spec.suspend or demand.features.get(FEATURE, "missing"):
        return FallbackPlan()
    own = [r for r in demand.requirements if r.resources and r.active and slots_per_pod(spec, pool, r)]
    ready = [other for other in spec.pools if _is_ready(observation, other)]
    stranded = [r for r in own if not any(slots_per_pod(spec, other, r) for other in ready)]
    waited = [r.since_seconds + max(0.0, observation.now - observation.demand_at) for r in stranded if r.unrunnable]
    after = pool.fallback.after_seconds
    falls = falls_back(
        active=_is_lending(observation, pool),
        after_seconds=after,
        waited_seconds=max(waited, default=0.0),
        tasks=sum(r.active for r in stranded),
    )
    if falls:
        added_demand = tuple(guest for r in stranded for guest in _added_demand(spec, pool, r))
        return FallbackPlan(tuple(pool.fallback.to), frozenset(stranded), added_demand)
    return FallbackPlan(requeue_after=soonest(after - max(waited)) if waited else None)


def without_lent_tasks(requirement: Requirement) -> Requirement:
    """`requirement` without the tasks that run on other pools, which will end there: no GPU need come for them."""
    left = requirement.active - requirement.lent
    if not requirement.lent or left < 0:
        return requirement
    return replace(
        requirement,
        processing=requirement.processing - requirement.lent,
        seconds=requirement.seconds * left / requirement.active,
        unknown=min(requirement.unknown, left),
    )


def with_fallback_demand(shares: dict[str, Share], plans: Iterable[FallbackPlan]) -> dict[str, Share]:
    """The demand of each pool with that which falls back on it: once, though it be that of several pools."""
    added = dict(shares)
    for name, _, share in dict.fromkeys(guest for each in plans for guest in each.added_demand):
        added[name] += share
    return added


def lent(pools: list[Pool], plans: dict[str, FallbackPlan]) -> dict[str, dict[str, float]]:
    """The resources that each pool's workers offer beyond their own, as in docs/preload-protocol.md."""
    by_name = {pool.name: pool for pool in pools}
    offers: dict[str, dict[str, float]] = {}
    for pool in pools:
        for other in plans[pool.name].to:
            for name, amount in _lent_by(pool, by_name[other]).items():
                amounts = offers.setdefault(other, {})
                amounts[name] = max(amount, amounts.get(name, 0.0))
    return offers


def _is_ready(observation: Observation, pool: Pool) -> bool:
    """True if `pool` has a worker that takes tasks and stays."""
    return any(
        worker.status == "running"
        for pod in observation.workers(pool.name)
        if pod.stays
        for worker in observation.registered(pod)
    )


def _is_lending(observation: Observation, pool: Pool) -> bool:
    """True if, as the scheduler has it, one of the pools named lends what `pool` offers."""
    assert pool.fallback is not None
    assert observation.demand is not None
    by_name = {other.name: other for other in observation.cluster.spec.pools}
    offers = observation.demand.offers
    wanted = [(other, _lent_by(pool, by_name[other]).keys()) for other in pool.fallback.to]
    return any(names and names <= offers.get(other, {}).keys() for other, names in wanted)


def _lent_by(pool: Pool, other: Pool) -> dict[str, float]:
    """The resources that a worker of `other` has to offer beside its own, to run the tasks of `pool`."""
    return {name: amount for name, amount in pool.offered_resources.items() if name not in other.offered_resources}


def _added_demand(spec: Spec, pool: Pool, requirement: Requirement) -> list[tuple[str, Requirement, Share]]:
    """`requirement` as the demand of the first of the pools named whose workers could then serve it."""
    assert pool.fallback is not None
    by_name = {other.name: other for other in spec.pools}
    for name in pool.fallback.to:
        other = by_name[name]
        offered = _lent_by(pool, other) | other.offered_resources
        fits = [int(offered[name] // amount) for name, amount in requirement.resources if amount > 0]
        if not may_exist(spec, other):
            continue
        slots = other.workers_per_pod * min([other.threads_per_worker, *fits])
        if slots:
            return [(name, requirement, Share.of(requirement, slots))]
    return []
