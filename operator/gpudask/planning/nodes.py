"""Whether pods that wait for nodes may still get them: a node that an autoscaler brings takes its time."""

from __future__ import annotations

from gpudask.planning import starts
from gpudask.planning.observed import Observation

# A pod that waits for a node longer than the last one took to start, and by so much, waits for one that may never come.
_LATE_FACTOR, _LATE_SECONDS = 1.5, 30.0
# So long a pod may wait for its node where none was seen to start: in a cloud most GPU nodes come sooner.
_UNKNOWN_LATE_SECONDS = 180.0


def late_in(seen: Observation, pool: str) -> list[float]:
    """In how many seconds each pod of `pool` that waits for a node will have waited too long; below 0: for so long."""
    waiting = [pod for pod in seen.workers(pool) if pod.live and pod.retirement is None and pod.unschedulable]
    if not waiting:
        return []
    start = starts.start_seconds(seen, pool)
    patience = _UNKNOWN_LATE_SECONDS if start is None else _LATE_FACTOR * start + _LATE_SECONDS
    return [pod.created + patience - seen.now for pod in waiting]


def is_any_late(seen: Observation, pool: str) -> bool:
    """Whether a pod of `pool` waits for a node that will not come, as far as one can tell by now."""
    return min(late_in(seen, pool), default=1.0) <= 0


def keep_from_growing(seen: Observation, pool: str) -> bool:
    """Whether pods of `pool` that wait for a node are a reason to ask for no more of them.

    Where no pod of the pool was seen to start, nobody knows whether there are nodes for it at all.
    """
    late = late_in(seen, pool)
    return bool(late) and (starts.start_seconds(seen, pool) is None or min(late) <= 0)
