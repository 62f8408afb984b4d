"""`lookAhead`: a pod that starts for tasks whose inputs are still being computed. Never more than one.

How many tasks wait says nothing of how many pods they need, and the estimate may be wrong: one pod, and the node that
comes for it, is what has to be there when the first of them can run. The size follows demand from then on, as it does
for any task whose duration nobody knows.
"""

from __future__ import annotations

# How long a pod is taken to need where none like it has been seen to start, in this cluster or another: a GPU node
# takes minutes to come, but a pod that is there too early holds a GPU for nothing.
UNKNOWN_START_SECONDS = 60.0
# A pod that waited longer than this waited for room, not for a node that an autoscaler brings: no measure for the next.
LONGEST_START_SECONDS = 600.0
# A pod is to be there a little before the tasks are.
_SOONER_SECONDS = 5.0
# The estimate jumps, by a quarter up and down, and a start that was not known turns out to be short: what was ordered
# for it is kept meanwhile.
_KEPT_FACTOR, _KEPT_SECONDS = 2.0, 15.0


def lead_seconds(start_seconds: float | None, *, pods: int) -> float:
    """The time by which a pod is ordered before the first task can run, or kept where the pool has `pods`.

    `start_seconds`: from a pod's creation until its workers are registered, None where none was seen to start.
    """
    start = UNKNOWN_START_SECONDS if start_seconds is None else start_seconds
    if pods:
        return max(UNKNOWN_START_SECONDS, _KEPT_FACTOR * start) + _KEPT_SECONDS
    return start + _SOONER_SECONDS


def is_soon(next_seconds: float | None, start_seconds: float | None, *, pods: int) -> bool:
    """Whether the first waiting task can run in `next_seconds` (None: nobody knows), soon enough for a pod now."""
    return next_seconds is not None and next_seconds <= lead_seconds(start_seconds, pods=pods)
