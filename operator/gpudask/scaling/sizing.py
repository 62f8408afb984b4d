"""The number of pods that a demand takes: the arithmetic of `targetDuration` and `lookAhead`, without a pool's past."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gpudask.api.pool import Autoscale
from gpudask.scaling.assignment import UNKNOWN_START_SECONDS, Share

# `lookAhead`: a pod is to be there a little before the first task can run.
_SOONER_SECONDS = 5.0
# The estimate jumps, by a quarter up and down, and a start that was not known turns out to be short: what was ordered
# for it is kept meanwhile.
_KEPT_FACTOR, _KEPT_SECONDS = 2.0, 15.0


@dataclass(frozen=True, slots=True)
class Size:
    """A pool's size in pods, why, and who set it: `autoscale`, `spec`, `suspend`, or an override's author.

    `is_guess`: nobody decided it, it is what the pods that are there stand for. It is not to be remembered: which of
    them are a rollout's surplus is known only once the scheduler has said which workers have joined.
    """

    pods: int
    reason: str
    set_by: str
    is_guess: bool = False


# So long a worker that has joined may take to end a first task before more pods are started for such tasks.
WARM_UP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Pods:
    """The pods that a pool has. `placed` ones have a node, `ready` ones are registered, `warmed_up` ones for some time.

    `start_seconds`: how long the next one may take to start. `held_seconds`: for how much of that it may hold a GPU,
    as while its image is pulled. Both are 0.0 where nobody knows.
    """

    ready: int = 0
    warmed_up: int = 0
    placed: int = 0
    start_seconds: float = 0.0
    held_seconds: float = 0.0


def wanted(limits: Autoscale, share: Share, pods: Pods, *, is_soon: bool = False) -> tuple[int, str]:
    """Pods that the demand asks for, within the limits, and the reason.

    Known durations: as many as clear the queue in `targetDuration`, after what the placed pods do of it until a new one
    has started: work that is done by then is no reason to start one. Nor is work that takes it less time than its start
    holds its GPU: where an image is pulled for minutes, fewer pods do more of a short burst each. Unknown ones: the
    pods that are ready, and as many again as have been so for `WARM_UP_SECONDS`: the size doubles, step by step, until
    a duration is known. Without the warm-up it would double at the very moment when the first pod joins, before any
    task could end there, and a queue of short tasks would start a pod that comes after their end. Never more pods than
    there are tasks to fill them.
    `is_soon`: tasks can run in no more time than a pod needs (`is_soon`): one pod is there for them.
    """
    count = _unlimited(limits, share, pods)
    if not count and is_soon and not limits.min:
        return 1, "tasks can run here soon"
    if count > limits.max:
        return limits.max, f"{_tasks(share)}: at its maximum of {limits.max}"
    if count < limits.min:
        return limits.min, f"at its minimum of {limits.min}"
    return count, _tasks(share) if count else "no demand"


def lead_seconds(start_seconds: float | None, *, pods: int) -> float:
    """The time by which a pod is ordered before the first task can run, or kept where the pool has `pods`.

    `start_seconds`: from a pod's creation until its workers are registered, None where none was seen to start.
    """
    start = UNKNOWN_START_SECONDS if start_seconds is None else start_seconds
    if pods:
        return max(UNKNOWN_START_SECONDS, _KEPT_FACTOR * start) + _KEPT_SECONDS
    return start + _SOONER_SECONDS


def is_soon(next_seconds: float | None, start_seconds: float | None, *, pods: int) -> bool:
    """True if the first waiting task can run in `next_seconds` (None: unknown), soon enough for a pod now.

    Then one pod is started while the task's inputs are still computed (`lookAhead`), and never more than one. How many
    tasks wait says nothing of how many pods they need, and the estimate may be wrong: one pod, and the node that comes
    for it, is what has to be there when the first of them can run. The size follows demand from then on, as it does for
    any task of unknown duration.
    """
    return next_seconds is not None and next_seconds <= lead_seconds(start_seconds, pods=pods)


def worth_waiting_for(limits: Autoscale, share: Share, pods: Pods) -> int:
    """The number of pods that are still worth it, where some wait for a node: those beyond are cancelled.

    It is more than `wanted`, which asks whether to order one that needs all of its start: these have waited already,
    and an estimate that changes a little must not take back what it asked for.
    """
    shorter = replace(pods, start_seconds=pods.start_seconds / 2, held_seconds=pods.held_seconds / 2)
    return min(limits.max, _unlimited(limits, share, shorter))


def kept(limits: Autoscale, share: Share, pods: Pods) -> int:
    """The number of pods below which none leaves, where `share` has what spills over once cheaper pools were tried.

    It is more than `wanted` while pods that are ready were not tried yet, or not since this operator first heard of
    them: that tasks of unknown duration may end in time is a reason to wait with more pods, not to let go of one.
    """
    return min(limits.max, _unlimited(limits, share, replace(pods, warmed_up=pods.ready)))


def _unlimited(limits: Autoscale, share: Share, pods: Pods) -> int:
    known = _for_known(share.pod_seconds, limits.target_duration_seconds, pods)
    unknown = min(share.pods_unknown, float(max(1, pods.ready + pods.warmed_up)))
    count = min(math.ceil(share.pods), math.ceil(known + unknown))
    return max(count, 1) if share.unrunnable or share.processing else count


def _for_known(pod_seconds: float, target_seconds: float, pods: Pods) -> float:
    """Pods for work of known duration: those with a node, as far as it fills them, or more for what they leave over."""
    left = pod_seconds - pods.placed * pods.start_seconds
    return max(min(float(pods.placed), pod_seconds / target_seconds), left / max(target_seconds, pods.held_seconds))


def fillable(share: Share) -> int:
    """The number of pods that the tasks that run or could run would fill, whatever time that takes."""
    return math.ceil(share.pods)


def _tasks(share: Share) -> str:
    beyond = f", more than pool {share.spills_from} can do" if share.spills_from else ""
    return f"{share.unrunnable} tasks wait, {share.processing} assigned{beyond}"
