"""How many pods a pool should have."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpudask.api.pool import Autoscale
from gpudask.scaling.assignment import Share


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
TRIAL_SECONDS = 2.0


def wanted(
    limits: Autoscale,
    share: Share,
    *,
    ready: int,
    tried: int | None = None,
    start_seconds: float = 0.0,
    is_soon: bool = False,
) -> tuple[int, str]:
    """Pods that the demand asks for, within the limits, and the reason.

    Known durations: as many as clear the queue in `targetDuration`, after what the ready pods do of it in the
    `start_seconds` that a new one needs: what they will have done by then is no reason to start one. Unknown ones: the
    pods that are ready, and as many again as have been so for `TRIAL_SECONDS` (`tried`, by default all): the size
    doubles, step by step, until a duration is known. Without the trial it would double at the very moment when the
    first pod joins, before any task could end there, and a queue of short tasks would start a pod that comes after
    their end. Never more pods than there are tasks to fill them. `is_soon`: tasks can run in no more time than a pod
    needs (`scaling.lookahead`): one pod is there for them.
    """
    known = _for_known(share.pod_seconds, limits.target_duration_seconds, ready, start_seconds)
    unknown = min(share.pods_unknown, float(max(1, ready + (ready if tried is None else tried))))
    pods = min(math.ceil(share.pods), math.ceil(known + unknown))
    if share.unrunnable or share.processing:
        pods = max(pods, 1)
    elif is_soon and not limits.min:
        return 1, "tasks can run here soon"
    if pods > limits.max:
        return limits.max, f"{_tasks(share)}: at its maximum of {limits.max}"
    if pods < limits.min:
        return limits.min, f"at its minimum of {limits.min}"
    return pods, _tasks(share) if pods else "no demand"


def _for_known(pod_seconds: float, target_seconds: float, ready: int, start_seconds: float) -> float:
    """Pods for work of known duration: those that are ready, as far as it fills them, or what will be left for more."""
    left = pod_seconds - ready * start_seconds
    return max(min(float(ready), pod_seconds / target_seconds), left / target_seconds)


def fillable(share: Share) -> int:
    """How many pods the tasks that run or could run would fill, whatever time that takes."""
    return math.ceil(share.pods)


def _tasks(share: Share) -> str:
    beyond = f", more than pool {share.spills_from} can do" if share.spills_from else ""
    return f"{share.unrunnable} tasks wait, {share.processing} assigned{beyond}"
