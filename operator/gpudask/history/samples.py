"""Samples of sizes and demand over time: taken where something changed, and thinned evenly to a bound."""

from __future__ import annotations

from collections.abc import Sequence

from gpudask.api.record import MAX_NAME, MAX_POOLS, PoolSample, Sample
from gpudask.api.status import PoolStatus, Status, epoch, iso

# Sizes follow each other in seconds while a cluster grows; counts of tasks change all the time.
_SIZES_SECONDS, _COUNTS_SECONDS = 1.0, 10.0


def take(status: Status, now: float) -> Sample:
    """The sample of `status`, without the pools that are gone; `now`: the API server's time."""
    there = [pool for pool in status.pools if pool.pods or not pool.removed]
    return Sample(at=iso(now, to="seconds"), pools=[_pool(pool) for pool in there[:MAX_POOLS]])


def is_due(before: Sample | None, sample: Sample) -> bool:
    """True if `sample` says something that `before`, the last one taken, does not, and is not too soon after it."""
    if before is None:
        return True
    if before.pools == sample.pools:
        return False
    changed_size = [_size(pool) for pool in before.pools] != [_size(pool) for pool in sample.pools]
    return _at(sample) - _at(before) >= (_SIZES_SECONDS if changed_size else _COUNTS_SECONDS)


def thinned(samples: Sequence[Sample], at_most: int) -> list[Sample]:
    """At most so many of `samples`, which are in order: those go whose neighbours are closest, never the ends."""
    kept = list(samples)
    times = [_at(sample) for sample in kept]
    while len(kept) > max(2, at_most):
        victim = min(range(1, len(kept) - 1), key=lambda i: times[i + 1] - times[i - 1])
        del kept[victim], times[victim]
    return kept[-at_most:] if at_most else []


def _pool(pool: PoolStatus) -> PoolSample:
    return PoolSample(
        name=pool.name[:MAX_NAME],
        desired=pool.desired,
        ready=pool.ready,
        waiting=pool.demand.waiting,
        running=pool.demand.running,
        gpus_held=pool.gpus_held,
        gpus_busy=pool.gpus_busy,
    )


def _size(pool: PoolSample) -> tuple[str, int, int, int]:
    return pool.name, pool.desired, pool.ready, pool.gpus_held


def _at(sample: Sample) -> float:
    return epoch(sample.at) or 0.0
