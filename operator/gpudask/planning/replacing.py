"""Pods that are replaced although they work: whose device is sick, at once; that have done their tasks, in turn."""

from __future__ import annotations

from dataclasses import replace

from gpudask.api.pool import Pool
from gpudask.desired import spec_hash
from gpudask.planning.actions import MarkRetiring
from gpudask.planning.observed import Observation, Pod, Retirement

WORN = "it has ended as many tasks as recycle.afterTasks says"


def sickness(seen: Observation, pool: Pool, pod: Pod) -> str:
    """Why a worker of `pod` can use its device no more, empty where none says so.

    A pool without GPUs has none that could be sick: tasks that look for one there are wrong, not the pod.
    """
    if pool.gpu is None:
        return ""
    return next((worker.sick for worker in seen.registered(pod) if worker.sick), "")


def old_and_new(seen: Observation, pool: Pool, pods: list[Pod]) -> tuple[list[Pod], list[Pod]]:
    """`pods` that are to be replaced in turn, and the others: made from an older spec, or done with their tasks."""
    current = spec_hash.of_worker(seen.cluster.spec, pool)
    old: list[Pod] = []
    new: list[Pod] = []
    for pod in pods:
        (old if pod.spec_hash != current or is_worn(seen, pool, pod) else new).append(pod)
    return old, new


def is_worn(seen: Observation, pool: Pool, pod: Pod) -> bool:
    """Whether a worker of `pod` has ended as many tasks as `recycle.afterTasks` allows.

    An autoscaled pool at rest replaces none: they leave for good, once they were idle for long enough.
    """
    if pool.recycle is None or seen.demand is None or (pool.autoscale is not None and not _works(seen, pool)):
        return False
    return any(worker.tasks_done >= pool.recycle.after_tasks for worker in seen.registered(pod))


def _works(seen: Observation, pool: Pool) -> bool:
    return seen.demand is not None and any(worker.own for worker in seen.demand.workers if worker.pool == pool.name)


def oust_sick(seen: Observation, pool: Pool) -> tuple[Observation, list[MarkRetiring]]:
    """What is seen once the pods with a sick device retire, and the marks that make it so.

    They do not wait for their successors, as in a rollout: whatever they get meanwhile fails.
    """
    if not seen.drains:
        return seen, []
    marks = {
        pod.uid: MarkRetiring(pod, Retirement(f"its device is sick: {why}", at=seen.now, final=True), failed=True)
        for pod in seen.workers(pool.name)
        if pod.live and (pod.retirement is None or not pod.retirement.final) and (why := sickness(seen, pool, pod))
    }
    pods = tuple(replace(p, retirement=marks[p.uid].retirement) if p.uid in marks else p for p in seen.pods)
    return (replace(seen, pods=pods) if marks else seen), list(marks.values())
