"""Replacement of pods: outdated and recycled ones in turn, those with an unhealthy device at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gpudask.api.reasons import Reason
from gpudask.planning.actions import MarkRetiring
from gpudask.planning.observed.observation import Observation
from gpudask.planning.observed.pods import Pod, Retirement
from gpudask.planning.pool_view import PoolView
from gpudask.scaling import retirement
from gpudask.scaling.sizing import Size

EDITED = "its spec was edited"
RECYCLED = "it has ended as many tasks as recycle.afterTasks says"
# A new pod that the capacity of one old pod does not help within this time gets that of the next.
_STUCK_SECONDS = 60.0


def surge(size: int) -> int:
    """The pods that a rollout may have beyond a pool's size: a quarter of it, at least one."""
    return max(1, size // 4)


def old_and_new(view: PoolView, pods: Iterable[Pod]) -> tuple[list[Pod], list[Pod]]:
    """`pods` that are to be replaced in turn, and the others: made from an older spec, or done with their tasks."""
    old: list[Pod] = []
    new: list[Pod] = []
    for pod in pods:
        (old if pod.spec_hash != view.spec_hash or _is_done(view, pod) else new).append(pod)
    return old, new


def why_replaced(view: PoolView, pod: Pod) -> str:
    """The reason to replace an old pod."""
    return EDITED if pod.spec_hash != view.spec_hash else RECYCLED


def is_final(retirement: Retirement) -> bool:
    """True if a pod is replaced for its own sake, and is not to be kept when its pool grows."""
    return retirement.final or retirement.why == EDITED  # so an operator before this one wrote it


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a rollout: the number of new pods, and the old ones to retire."""

    create: int
    retire: Sequence[Pod]
    requeue_after: float | None = None


def step(view: PoolView, size: Size, pods: Sequence[Pod]) -> Step | None:
    """Replace the old ones of `pods`, new ones first; None where there are none.

    A quarter of the pool, at least one pod, is surplus meanwhile. Where a new pod finds no node, an old one goes first.
    """
    old, new = old_and_new(view, pods)
    if not old:
        return None
    works = view.observation.has_process
    broken, working = [pod for pod in old if not works(pod)], [pod for pod in old if works(pod)]
    joined = sum(1 for pod in new if view.has_joined(pod))
    stuck = [pod for pod in new if pod.unschedulable]
    spare, requeue_after = len(working) + joined - size.pods, None
    is_full = view.memory.refusal_reason == Reason.QUOTA
    if (stuck or is_full) and not room_was_made(view):
        crowded = is_full or len(new) + len(working) > size.pods
        stuck_after = min(pod.created for pod in stuck) + _STUCK_SECONDS - view.observation.now if stuck else 0.0
        if crowded or stuck_after <= 0:
            spare = max(spare, 1)
        else:
            requeue_after = stuck_after
    by_name = {pod.name: pod for pod in working}
    chosen = retirement.surplus(view.candidates(working), spare)
    beyond = 0 if size.is_guess else surge(size.pods)
    create = min(size.pods - len(new), size.pods + beyond - len(new) - len(working))
    return Step(
        create=0 if stuck else max(0, create),
        retire=[*broken, *(by_name[candidate.pod] for candidate in chosen)],
        requeue_after=requeue_after,
    )


def room_was_made(view: PoolView) -> bool:
    """True if a pod that is replaced is terminating, whose capacity a new one that is stuck may get."""
    pods = [pod for pod in view.pods if not pod.finished and (pod.deleting or pod.retirement is not None)]
    old, new = old_and_new(view, pods)
    return bool(old) or any(pod.retirement is not None and pod.retirement.final for pod in new)


def possible_sizes(view: PoolView) -> tuple[int, int]:
    """The least and the largest size that the pods that stay may stand for: all of them, or a rollout's surplus less.

    A rollout never makes more new pods than the size, nor more pods than the size and its surge. An old one leaves for
    each new one that has joined (but while the scheduler is not heard), or to make room for a new one that is stuck.
    """
    pods = view.staying
    old, new = old_and_new(view, pods)
    if not old:
        return len(pods), len(pods)
    replaced = sum(1 for pod in new if view.has_joined(pod))
    if any(pod.unschedulable for pod in new) and room_was_made(view):
        replaced += 1
    bare = next(size for size in range(len(pods) + 1) if size + surge(size) >= len(pods))
    fewest = max(len(old), len(new), bare)
    return fewest, max(fewest, len(old) + replaced)


def replace_unhealthy(view: PoolView) -> tuple[PoolView, list[MarkRetiring]]:
    """Retire the pods with an unhealthy device: the pool without them, and the actions for that.

    They do not wait for their successors, as in a rollout: whatever they get meanwhile fails.
    """
    observation = view.observation
    if not observation.can_drain:
        return view, []
    marks = {
        pod.uid: MarkRetiring(
            pod, Retirement(f"its device is sick: {why}", at=observation.now, final=True), failed=True
        )
        for pod in view.pods
        if pod.live and (pod.retirement is None or not pod.retirement.final) and (why := view.device_failure(pod))
    }
    if not marks:
        return view, []
    pods = tuple(replace(p, retirement=marks[p.uid].retirement) if p.uid in marks else p for p in observation.pods)
    return PoolView(replace(observation, pods=pods), view.pool), list(marks.values())


def _is_done(view: PoolView, pod: Pod) -> bool:
    """True if `pod` is to be recycled: a worker has ended as many tasks as `recycle.afterTasks` allows.

    An autoscaled pool at rest replaces none: they leave for good, once they were idle for long enough.
    """
    pool, observation = view.pool, view.observation
    if pool.recycle is None or observation.demand is None:
        return False
    if pool.autoscale is not None and not _is_at_work(observation, pool.name):
        return False
    return any(worker.tasks_done >= pool.recycle.after_tasks for worker in observation.registered(pod))


def _is_at_work(observation: Observation, pool: str) -> bool:
    workers = observation.demand.workers if observation.demand else ()
    return any(worker.own for worker in workers if worker.pool == pool)
