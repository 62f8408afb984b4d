"""The status that tells about a pass: the truth, per pool, and what changed since the last one."""

from __future__ import annotations

from gpudask.api import addresses
from gpudask.api.status import PoolStatus, SchedulerStatus, Status, Summary
from gpudask.planning import idleness, limits
from gpudask.planning.actions import Plan
from gpudask.planning.conditions import concluded
from gpudask.planning.observed import Observation
from gpudask.planning.pool_status import pool_status, removed_pool_status
from gpudask.planning.times import epoch, iso

_ABOUT_SECONDS = 2.0


def report(seen: Observation, plan: Plan, before: Status, *, counted_at: float | None = None) -> Status:
    """The status after this pass; `before` is the last one computed, for counters and transition times.

    `counted_at`: when this process computed it; None: an operator before this one did, at the API server's time that
    stands in it.
    """
    seen = limits.in_force(seen)
    earlier = {pool.name: pool for pool in before.pools}
    elapsed = max(0.0, _since_count(seen, before) if counted_at is None else seen.now - counted_at)
    pools = [
        pool_status(
            seen,
            pool,
            plan.pools[pool.name],
            plan.assignment.shares[pool.name],
            earlier.get(pool.name),
            fallback=", ".join(plan.fallbacks.get(pool.name, ())),
            elapsed=elapsed,
        )
        for pool in seen.cluster.spec.pools
        if pool.name in plan.pools
    ]
    gone = sorted({pod.pool for pod in seen.of_removed_pools if not pod.finished})
    pools += [removed_pool_status(seen, name, earlier.get(name), elapsed=elapsed) for name in gone]
    scheduler = _scheduler(seen, before.scheduler)
    status = Status(
        observed_generation=seen.cluster.generation,
        scheduler=scheduler,
        summary=_summary(seen, pools),
        pools=pools,
        counted_at=iso(seen.server_time),
    )
    return concluded(seen, plan, status, before)


def _since_count(seen: Observation, before: Status) -> float:
    counted_at = epoch(before.counted_at)
    return 0.0 if counted_at is None else seen.server_time - counted_at


def _scheduler(seen: Observation, before: SchedulerStatus) -> SchedulerStatus:
    cluster, pod = seen.cluster, seen.scheduler
    process, tasks, lost = before.process, before.tasks, before.lost
    if seen.demand is not None:
        process, tasks = seen.demand.scheduler_id, seen.demand.tasks
        if before.process not in ("", process) and before.tasks:
            lost = f"{iso(seen.now)}: {before.tasks} tasks"
    elif cluster.spec.suspend and pod is None:
        process, tasks = "", 0  # a person's wish
    return SchedulerStatus(
        pod=pod.name if pod else "",
        address=addresses.scheduler_address(cluster.name, cluster.namespace, cluster.spec.protocol),
        dashboard=addresses.dashboard(cluster.name, cluster.namespace),
        ready=bool(pod and pod.ready),
        process=process,
        tasks=tasks,
        lost=lost,
        idle_since=_idle_since(seen, before.idle_since),
    )


def _idle_since(seen: Observation, before: str) -> str:
    """What was said stays while it is about right: answers differ by the time that they take."""
    unused = idleness.idle_seconds(seen)
    if seen.cluster.spec.idle.delete_after is None or not unused:
        return ""
    since = seen.now - unused
    said = epoch(before)
    return before if said is not None and abs(said - since) < _ABOUT_SECONDS else iso(since)


def _summary(seen: Observation, pools: list[PoolStatus]) -> Summary:
    gpu = {pool.name for pool in seen.cluster.spec.pools if pool.gpu}
    gpu |= {pod.pool for pod in seen.of_removed_pools if pod.gpus}
    return Summary(
        cpu=_ready_of_desired([p for p in pools if p.name not in gpu]),
        gpu=_ready_of_desired([p for p in pools if p.name in gpu]),
    )


def _ready_of_desired(pools: list[PoolStatus]) -> str:
    return f"{sum(pool.ready for pool in pools)}/{sum(pool.desired for pool in pools)}"
