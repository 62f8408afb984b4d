"""What of a demand is too much for the pool that serves it, and so goes on to the next, dearer one.

A pool at its maximum, or one whose further pods find no node or are refused, does what it can in the time that a pod
of the next pool needs to start, and in `targetDuration` after that. Only what is left then is worth a dearer pod.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gpudask.scaling.demand import Requirement


@dataclass(frozen=True, slots=True)
class Room:
    """The `pods` that a pool can have now.

    `all_tried`: whether it has all of them, and each had time to end a first task. `start_seconds`: how long one of
    its pods takes to start, None where none was seen to.
    """

    pods: float = math.inf
    all_tried: bool = False
    start_seconds: float | None = None

    def less(self, pods: float) -> Room:
        """The room that is left when `pods` of it are taken."""
        return replace(self, pods=max(0.0, self.pods - pods))


def needed_pods(requirement: Requirement, slots: int, seconds: float, *, all_tried: bool = True) -> float:
    """Pods, with `slots` for such tasks each, that do `requirement` in `seconds`: never more than its tasks fill.

    Tasks of unknown duration count as longer than that, but only once all pods that the pool can have were tried:
    until then it is the pool's own size that doubles.
    """
    known = requirement.seconds / seconds if seconds > 0 else float(requirement.active)
    unknown = requirement.unknown if all_tried else 0
    return min(float(requirement.active), known + unknown) / slots


def excess(requirement: Requirement, slots: int, seconds: float, room: Room) -> Requirement:
    """The part of `requirement` that `room` cannot do in `seconds`; what waits goes first."""
    need = needed_pods(requirement, slots, seconds, all_tried=room.all_tried)
    if need <= room.pods:
        return Requirement(requirement.resources)
    part = 1.0 - room.pods / need
    tasks = math.ceil(part * requirement.active)
    unrunnable = min(tasks, requirement.unrunnable)
    return Requirement(
        requirement.resources,
        unrunnable=unrunnable,
        processing=tasks - unrunnable,
        seconds=part * requirement.seconds,
        unknown=math.ceil(part * requirement.unknown),
    )
