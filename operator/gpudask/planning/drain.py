"""Drains of worker pods: their beginning, what they wait for, and `drainTimeout`.

A pod is marked, its scheduler retires its workers (docs/preload-protocol.md), and once they hold nothing it goes.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

from gpudask.api import Json
from gpudask.planning.actions import Action, DeletePod, MarkRetiring, soonest
from gpudask.planning.observed.observation import Observation
from gpudask.planning.observed.pods import Pod, Retirement
from gpudask.planning.pool_view import UNREGISTERED_SECONDS, PoolView
from gpudask.scaling import retirement

# A drain that takes longer than this is reported: a task that does not end holds the pod.
_HUNG_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Drain:
    """The progress of a pod's drain. `hangs`: report it. `is_overdue`: delete the pod now, drained or not."""

    hangs: bool = False
    is_overdue: bool = False
    requeue_after: float | None = None


def progress(pod: Pod, now: float, timeout_seconds: float | None) -> Drain:
    """The drain of `pod`, whose pool's `drainTimeout` is `timeout_seconds`; None: it is waited for as long as it takes.

    A pod that is not to leave, or of which nobody noted since when, has none.
    """
    if pod.retirement is None or not pod.retirement.at:
        return Drain()
    lasts = max(0.0, now - pod.retirement.at)
    hung_after = _HUNG_SECONDS - lasts
    overdue_after = None if timeout_seconds is None else timeout_seconds - lasts
    return Drain(
        hangs=pod.live and hung_after <= 0,
        is_overdue=overdue_after is not None and overdue_after <= 0,
        requeue_after=soonest(hung_after, overdue_after),
    )


def begin(
    observation: Observation,
    pod: Pod,
    why: str,
    *,
    if_idle: bool = False,
    release: bool = False,
    final: bool = False,
) -> Action:
    """Cancel a pod that does not run; retire one that does. The keywords are `Retirement`'s."""
    if not observation.has_process(pod):
        return DeletePod(pod, why, only_if_unchanged=True)
    return MarkRetiring(pod, Retirement(why, if_idle=if_idle, release=release, final=final, at=observation.now))


@dataclass(frozen=True, slots=True)
class Finish:
    """The actions for the retiring pods of a pool."""

    actions: tuple[Action, ...]
    requeue_after: float | None


def finish(view: PoolView, decided: Container[str]) -> Finish:
    """Delete the retiring pods that hold nothing, or drain too long; release held data when its time has come.

    `decided`: uids of the pods that this pass has an action for already.
    """
    actions, requeue_after = [], None
    for pod in view.leaving:
        drain = progress(pod, view.observation.now, view.pool.drain_timeout_seconds)
        requeue_after = soonest(
            requeue_after, drain.requeue_after, view.unregistered_after(pod), _released_after(view, pod)
        )
        if pod.uid not in decided and (action := _next_step(view, pod, drain)) is not None:
            actions.append(action)
    return Finish(tuple(actions), requeue_after)


def is_empty(observation: Observation, pod: Pod) -> bool:
    """True if a retiring pod holds nothing that anybody waits for."""
    workers = observation.registered(pod)
    if observation.cluster.spec.suspend and not observation.can_drain:  # nobody will ever drain it
        return all(not worker.processing for worker in workers)
    if observation.demand is None:
        return False
    if workers:
        return all(worker.retiring == "drained" for worker in workers)
    return observation.unregistered_seconds(pod) >= UNREGISTERED_SECONDS


def waits_for(observation: Observation, pod: Pod) -> str:
    """A message about what a drain waits for, as the scheduler has it."""
    if observation.demand is None:
        return "the scheduler is not heard"
    workers = [worker for worker in observation.registered(pod) if worker.retiring != "drained"]
    return "; ".join(worker.detail or f"{worker.processing} tasks" for worker in workers[:3]) or "its end"


def _next_step(view: PoolView, pod: Pod, drain: Drain) -> Action | None:
    assert pod.retirement is not None
    observation = view.observation
    if not observation.has_process(pod):
        return DeletePod(pod, pod.retirement.why, only_if_unchanged=True)
    if is_empty(observation, pod):
        return DeletePod(pod, pod.retirement.why)
    if drain.is_overdue:
        return DeletePod(pod, f"drainTimeout is over: {waits_for(observation, pod)}", forced=True)
    if not pod.retirement.release and _may_release(view, pod):
        return MarkRetiring(pod, replace(pod.retirement, release=True))
    if not pod.retirement.at:
        return MarkRetiring(pod, replace(pod.retirement, at=observation.now))  # from now on its drain is timed
    return None


def _may_release(view: PoolView, pod: Pod) -> bool:
    """True if held data may be released. Of an unhealthy device, what could not be moved is lost already."""
    if retirement.releases(view.candidate(pod), view.release_after_seconds):
        return True
    workers = view.observation.registered(pod)
    tried = any(worker.retiring == "blocked" and "data" in worker.blockers for worker in workers)
    return tried and bool(view.device_failure(pod)) and _has_another_worker(view.observation, pod)


def _released_after(view: PoolView, pod: Pod) -> float | None:
    """Seconds until the results of an idle pod may be released."""
    after, candidate = view.release_after_seconds, view.candidate(pod)
    return None if after is None or candidate.busy else after - candidate.idle_seconds


def _has_another_worker(observation: Observation, pod: Pod) -> bool:
    """True if results of `pod` had somewhere to go: a worker that runs, stays, and has a healthy device."""
    stay = (other for other in observation.pods if other.pool and other.stays and other.uid != pod.uid)
    return any(
        worker.status == "running" and not worker.sick for other in stay for worker in observation.registered(other)
    )


def retirements(observation: Observation) -> list[Json]:
    """The full list of pods for the preload to retire: all so marked, and those that end for whatever reason.

    A pod that somebody else deletes has its grace period left: what it holds may still be moved, and nothing is to be
    moved to it. One whose drain took too long is waited for no more, by its own hook either.
    """
    timeouts = {pool.name: pool.drain_timeout_seconds for pool in observation.cluster.spec.pools}
    asked = [
        {
            "pod": pod.dask_name,
            "data": "release" if pod.retirement.release else "move",
            "if_idle": pod.retirement.if_idle and not pod.deleting,
            **({"forced": True} if progress(pod, observation.now, timeouts.get(pod.pool)).is_overdue else {}),
        }
        for pod in observation.pods
        if pod.pool and pod.retirement is not None and not pod.finished
    ]
    ending = [
        pod for pod in observation.pods if pod.pool and pod.deleting and pod.retirement is None and not pod.finished
    ]
    return asked + [{"pod": pod.dask_name, "data": "move", "if_idle": False} for pod in ending]
