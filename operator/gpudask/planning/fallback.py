"""Which pools' tasks fall back on others in this pass: what those lend, and whose demand it adds to."""

from __future__ import annotations

from dataclasses import dataclass

from gpudask.api.pool import Pool
from gpudask.planning.observed import Observation
from gpudask.scaling.assignment import Share, slots_per_pod
from gpudask.scaling.demand import Requirement
from gpudask.scaling.fallback import falls_back

FEATURE = "offers"


@dataclass(frozen=True, slots=True)
class FallbackPlan:
    """The decision for one pool. `shares`: its demand as that of the pools that it falls back on."""

    to: tuple[str, ...] = ()
    shares: tuple[tuple[str, Share], ...] = ()
    wake_after_seconds: float | None = None


def plan_fallback(seen: Observation, pool: Pool) -> FallbackPlan:
    """Decide for `pool`. Whether it falls back already, the scheduler says: a restarted operator needs no memory."""
    spec, demand = seen.cluster.spec, seen.demand
    if pool.fallback is None or demand is None or spec.suspend or demand.features.get(FEATURE, "missing"):
        return FallbackPlan()
    own = [r for r in demand.requirements if r.resources and r.active and slots_per_pod(spec, pool, r)]
    waited = [r.since_seconds + max(0.0, seen.now - seen.demand_at) for r in own if r.unrunnable]
    after = pool.fallback.after_seconds
    ready = sum(
        1
        for pod in seen.workers(pool.name)
        if pod.live and pod.retirement is None
        for worker in seen.registered(pod)
        if worker.status == "running"
    )
    falls = falls_back(
        active=_is_lent(seen, pool),
        after_seconds=after,
        waited_seconds=max(waited, default=0.0),
        tasks=sum(r.active for r in own),
        ready=ready,
    )
    if falls:
        to = tuple(pool.fallback.to)
        first = next(other for other in spec.pools if other.name == to[0])
        return FallbackPlan(to, tuple((first.name, _share(pool, first, r)) for r in own))
    left = after - max(waited) if waited and not ready else None
    return FallbackPlan(wake_after_seconds=left if left is not None and left > 0 else None)


def lent(pools: list[Pool], plans: dict[str, FallbackPlan]) -> dict[str, dict[str, float]]:
    """What each pool's workers offer beyond their own, in the preload's words (docs/preload-protocol.md)."""
    offers: dict[str, dict[str, float]] = {}
    for pool in pools:
        for other in plans[pool.name].to:
            amounts = offers.setdefault(other, {})
            for name, amount in pool.offered_resources.items():
                amounts[name] = max(amount, amounts.get(name, 0.0))
    return offers


def _is_lent(seen: Observation, pool: Pool) -> bool:
    assert pool.fallback is not None
    assert seen.demand is not None
    offers = seen.demand.offers
    return any(pool.offered_resources.keys() <= offers.get(other, {}).keys() for other in pool.fallback.to)


def _share(pool: Pool, other: Pool, requirement: Requirement) -> Share:
    """`requirement` as the demand of `other`, each worker of which runs what one of `pool` could."""
    fits = [int(pool.offered_resources[name] // amount) for name, amount in requirement.resources if amount > 0]
    slots = other.workers_per_pod * min([other.threads_per_worker, *fits])
    return Share(
        unrunnable=requirement.unrunnable,
        processing=requirement.processing,
        pods=requirement.active / slots,
        pods_unknown=requirement.unknown / slots,
        pod_seconds=requirement.seconds / slots,
    )
