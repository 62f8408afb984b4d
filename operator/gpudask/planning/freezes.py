"""Pools whose sizes stay although they might be wrong, because the scheduler is not heard or cannot drain.

Nothing is deleted because a read failed. Only a pool that holds GPUs is given up, and only where `idle.frozenFor` says
after how long.
"""

from __future__ import annotations

from gpudask.api.pool import Pool
from gpudask.planning import sizes
from gpudask.planning.observed import Observation, Pod
from gpudask.scaling import retirement
from gpudask.scaling.sizing import Size

# A freeze that lasts is told. Where the scheduler pod itself is not ready, it may still pull its image.
_PATIENCE_SECONDS, _START_SECONDS = 20.0, 120.0


def why_frozen(seen: Observation, pool: Pool, size: Size) -> str:
    """Why the size of `pool` cannot follow what is wanted now; empty where it can."""
    why = _why_unheard(seen)
    if not why:
        return ""
    if size.set_by == "autoscale" and not seen.counts:
        return why
    if seen.cluster.spec.suspend and not seen.drains:
        return ""  # a suspended cluster ends without anybody to drain it
    leave = [pod for pod in seen.workers(pool.name) if pod.live and pod.retirement is not None and seen.works(pod)]
    too_many = len(sizes.staying(seen, pool)) > size.pods
    return why if leave or too_many else ""


def patience_seconds(seen: Observation) -> float:
    """After how long a freeze is told."""
    return _PATIENCE_SECONDS if seen.scheduler is not None and seen.scheduler.ready else _START_SECONDS


def is_given_up(seen: Observation, pool: Pool) -> bool:
    """Whether `pool`, which is frozen, has been so for longer than its GPUs may be held without use."""
    after = seen.cluster.spec.idle.frozen_for_seconds
    since = seen.frozen_at.get(pool.name)
    return pool.gpu is not None and after is not None and since is not None and seen.now - since >= after


def least(seen: Observation, pool: Pool, size: Size) -> int:
    """Pods that stay of a pool that is given up: its size, or its minimum where nobody knows the demand."""
    if pool.autoscale is not None and size.set_by == "autoscale" and not seen.counts:
        return min(size.pods, pool.autoscale.min)
    return size.pods


def to_go(seen: Observation, pool: Pool, keep: int) -> list[Pod]:
    """The pods of a pool that is given up which go: those that leave already, and those beyond `keep`."""
    pods = sizes.staying(seen, pool)
    by_name = {pod.name: pod for pod in pods}
    chosen = retirement.surplus(sizes.candidates(seen, pods), len(pods) - keep)
    leaving = [pod for pod in seen.workers(pool.name) if pod.live and pod.retirement is not None]
    return [*leaving, *(by_name[candidate.pod] for candidate in chosen)]


def freeze_moments(seen: Observation, pool: Pool) -> list[float]:
    """In how many seconds time alone changes what is done or said about the freeze of `pool`; some may be past."""
    since = seen.frozen_at.get(pool.name, seen.now)
    ends = [patience_seconds(seen)]
    if pool.gpu is not None and seen.cluster.spec.idle.frozen_for_seconds is not None:
        ends.append(seen.cluster.spec.idle.frozen_for_seconds)
    return [since + end - seen.now for end in ends]


def _why_unheard(seen: Observation) -> str:
    if seen.demand is None:
        if seen.demand_problem:
            return seen.demand_problem
        if seen.scheduler is None:
            return "there is no scheduler pod"
        return "the scheduler has not been heard yet" if seen.scheduler.running else "the scheduler starts"
    off = ((name, seen.demand.features.get(name, "")) for name in ("demand", "retire"))
    return next((f"{name} is off: {why}" for name, why in off if why), "")
