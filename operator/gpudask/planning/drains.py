"""Drains that take long: from when on they are reported, and from when on they are waited for no more."""

from __future__ import annotations

from gpudask.api.pool import Pool
from gpudask.planning.observed import Observation, Pod

# A drain that takes longer than this is reported as trouble: a task that does not end holds the pod.
HUNG_SECONDS = 600.0


def draining_seconds(seen: Observation, pod: Pod) -> float:
    """For how long `pod` has been on its way out, 0.0 where nobody noted when that began."""
    began = pod.retirement.at if pod.retirement is not None else 0.0
    return max(0.0, seen.now - began) if began else 0.0


def hangs(seen: Observation, pod: Pod) -> bool:
    """Whether the drain of `pod` is to be reported."""
    return pod.live and draining_seconds(seen, pod) >= HUNG_SECONDS


def is_overdue(seen: Observation, pool: Pool, pod: Pod) -> bool:
    """Whether `pod` goes now, drained or not: its drain has taken the pool's `drainTimeout`."""
    timeout = pool.drain_timeout_seconds
    return timeout is not None and pod.retirement is not None and draining_seconds(seen, pod) >= timeout


def drain_moments(seen: Observation, pool: Pool, pod: Pod) -> list[float]:
    """In how many seconds time alone changes what is done or said about the drain of `pod`; some may be past."""
    if pod.retirement is None or not pod.retirement.at:
        return []
    ends = [HUNG_SECONDS] if pool.drain_timeout_seconds is None else [HUNG_SECONDS, pool.drain_timeout_seconds]
    return [pod.retirement.at + end - seen.now for end in ends]


def waits_for(seen: Observation, pod: Pod) -> str:
    """What a drain waits for, in the scheduler's words."""
    if seen.demand is None:
        return "the scheduler is not heard"
    workers = [worker for worker in seen.registered(pod) if worker.retiring != "drained"]
    return "; ".join(worker.detail or f"{worker.processing} tasks" for worker in workers[:3]) or "its end"
