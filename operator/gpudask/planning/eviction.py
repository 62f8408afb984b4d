"""Eviction protection: of pods that work at once, of idle ones no longer after a while.

At work is a pod whose own tasks run, or that holds what it cannot leave behind; the scheduler, while it knows any
task. So a stream of short tasks writes nothing: the pods are protected when it begins, and until it has long ended.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpudask.desired.disruption import EVICTION_ANNOTATIONS, eviction_protection
from gpudask.planning.actions import MarkProtected, soonest
from gpudask.planning.observed.observation import Observation
from gpudask.planning.observed.pods import Pod

# How long a pod rests before it may be evicted.
REST_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Protection:
    """The protection of a pod; None: leave it as it is, since the pod starts, became idle just now, or is not known."""

    wanted: bool | None = None
    requeue_after: float | None = None


@dataclass(frozen=True, slots=True)
class Protections:
    """The protections to change. `of_scheduler`: whether the scheduler is protected; None: as it was."""

    actions: tuple[MarkProtected, ...]
    of_scheduler: bool | None
    requeue_after: float | None


def at_work(observation: Observation) -> frozenset[str]:
    """The uids of the pods that are at work now."""
    return frozenset(pod.uid for pod in observation.pods if _is_at_work(observation, pod))


def protections(observation: Observation) -> Protections:
    """The pods whose annotations for node autoscalers have to change. A retiring pod keeps its own."""
    spec = observation.cluster.spec
    pools = {pool.name: pool for pool in spec.pools}
    scheduler, actions = observation.scheduler, []
    of_scheduler, requeue_after = None, None
    for pod in observation.pods:
        if not pod.stays:
            continue
        protection = _protection(observation, pod)
        requeue_after = soonest(requeue_after, protection.requeue_after)
        if pod is scheduler:
            of_scheduler = protection.wanted
        if protection.wanted is None or (pod.pool and pod.pool not in pools):
            continue
        wanted = eviction_protection(spec, pools.get(pod.pool), is_protected=protection.wanted)
        current = dict(zip(EVICTION_ANNOTATIONS, pod.eviction_annotations, strict=False))
        if any(current.get(name) != value for name, value in wanted.items()):
            actions.append(MarkProtected(pod, wanted))
    return Protections(tuple(actions), of_scheduler, requeue_after)


def _protection(observation: Observation, pod: Pod) -> Protection:
    if observation.demand is None or not observation.knows_demand:
        return Protection()
    if _is_at_work(observation, pod):
        return Protection(wanted=True)
    rested = _rested_seconds(observation, pod)
    if rested is None:
        return Protection()
    if rested < REST_SECONDS:
        return Protection(requeue_after=REST_SECONDS - rested)
    return Protection(wanted=False)


def _rested_seconds(observation: Observation, pod: Pod) -> float | None:
    """Seconds for which `pod` has not been at work; None where that is not known."""
    if pod.pool:
        workers = observation.registered(pod)
        if not workers:
            return None
        idle = min(observation.idle_seconds(worker) for worker in workers)
    else:
        idle = observation.now - observation.scheduler_since
    since = observation.busy_at.get(pod.uid)
    return idle if since is None else min(idle, observation.now - since)


def _is_at_work(observation: Observation, pod: Pod) -> bool:
    if observation.demand is None:
        return False
    if not pod.pool:
        return bool(observation.demand.tasks) and pod is observation.scheduler
    return any(worker.own or set(worker.blockers) - {"running"} for worker in observation.registered(pod))
