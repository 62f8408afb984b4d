"""The scheduler pod: exactly one, replaced when it is gone for good, or out of date and free to go.

And what of the spec is not in force as long as it waits for that; and preemption: the worker pods that make room for
one that a quota refuses.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

from gpudask.api.reasons import Reason
from gpudask.api.resource import Cluster
from gpudask.api.spec import Spec
from gpudask.desired import names, spec_hash
from gpudask.desired.spec_hash import Memo
from gpudask.planning.actions import Action, CreateScheduler, DeletePod, RemoveFromService, soonest
from gpudask.planning.observed.observation import Observation, PoolMemory
from gpudask.planning.observed.pods import Pod

# A pod that outlives its deletion by this long stands on a lost node: its successor waits no longer.
_LOST_SECONDS = 10.0
# For so long a refused scheduler is only tried again, about four times, before a worker pod makes room: what has ended,
# the last scheduler too, leaves a quota a moment later, by a controller's hand.
_TRIED_SECONDS = 10.0
# A pass that tries to create the scheduler does not know yet how that ends: the next one does.
_ANSWER_SECONDS = 1.0
_in_force: Memo[Spec] = Memo(1000)  # each shares all but two fields with the spec that it is made of
_with_image: Memo[Spec] = Memo(1000)  # each shares all but one


@dataclass(frozen=True, slots=True)
class SchedulerPlan:
    """The actions for the scheduler pod, or for the sake of it.

    `requeue_after`: until a back-off ends, or a lost node is given up, or a worker pod may make room.
    """

    actions: tuple[Action, ...]
    requeue_after: float | None = None


def plan_scheduler(observation: Observation) -> SchedulerPlan:
    """Create, replace or remove the scheduler pod."""
    plan = _replaced(observation)
    return SchedulerPlan((*_removed_from_service(observation), *plan.actions), plan.requeue_after)


def _removed_from_service(observation: Observation) -> tuple[Action, ...]:
    """Remove pods from the Service that are not the scheduler, or not for long.

    Who dials while the last one ends is refused, and dials again. Were the Service to lead to it until it is gone, a
    connection made in its last moment would wait for an answer from an address that nobody has any more.
    """
    others = (pod for pod in observation.schedulers if pod != observation.scheduler)
    return tuple(RemoveFromService(pod) for pod in others if pod.serves and not pod.finished)


def _replaced(observation: Observation) -> SchedulerPlan:
    current = observation.scheduler
    finished: tuple[Action, ...] = tuple(
        DeletePod(pod, f"it ended: {pod.phase}") for pod in observation.schedulers if pod.finished and not pod.deleting
    )
    if observation.cluster.spec.suspend:
        workers_left = any(pod.pool and not pod.finished for pod in observation.pods)
        ends = () if current is None or workers_left else (DeletePod(current, "suspended"),)
        return SchedulerPlan((*finished, *ends))
    if current is None:
        waits = _created_after(observation)
        creates = () if waits is not None else (CreateScheduler(_next_name(observation)),)
        return SchedulerPlan((*finished, *creates), waits)
    extra = (
        DeletePod(pod, "another scheduler pod is older")
        for pod in observation.schedulers
        if pod.live and pod != current
    )
    if not is_replaced_now(observation):
        return SchedulerPlan((*finished, *extra))
    if refused := soonest(_memory(observation).not_before - observation.now):
        return SchedulerPlan((*finished, *extra), refused)
    edited = DeletePod(current, "its spec was edited", successor=_next_name(observation))
    return SchedulerPlan((*finished, *extra, edited))


def is_there(observation: Observation) -> bool:
    """True if there is a scheduler pod, or this very pass creates one.

    Without one a worker has nobody to work for, and what it takes of a quota may be what the scheduler needs.
    """
    if observation.scheduler is not None:
        return True
    return not observation.cluster.spec.suspend and _created_after(observation) is None


def is_replaced_now(observation: Observation) -> bool:
    """True if this very pass ends the scheduler, for a newer one."""
    return (
        observation.scheduler is not None
        and outdated(observation, observation.scheduler)
        and can_be_replaced(observation)
    )


def lacks_room(observation: Observation) -> bool:
    """True if there is no scheduler pod because a quota refuses it."""
    wanted = observation.scheduler is None and not observation.cluster.spec.suspend
    return wanted and _memory(observation).refusal_reason == Reason.QUOTA


def preemptible(observation: Observation) -> list[Pod]:
    """The worker pods that could make room: all that are there, also those of pools that the spec no longer has."""
    return [pod for pod in observation.pods if pod.pool and pod.live]


def plan_preemption(observation: Observation, decided: Container[str]) -> SchedulerPlan:
    """Delete one worker pod for a scheduler that a quota refuses; the next once it is gone, and that was tried again.

    A worker ends with the scheduler that it was connected to, and all that it knew with it: without one it holds its
    place, and its GPUs, for nobody (docs/adr/0058). One whose end its node does not confirm is not waited for.

    `decided`: uids of the pods that this pass has an action for already.
    """
    free = [pod for pod in preemptible(observation) if pod.uid not in decided]
    if not lacks_room(observation) or not free:
        return SchedulerPlan(())
    memory, now = _memory(observation), observation.now
    tried = max(memory.refused_since, memory.room_at) + _TRIED_SECONDS - now
    answer = _ANSWER_SECONDS if memory.not_before <= now else 0.0
    ending = (pod.delete_by + _LOST_SECONDS - now for pod in observation.pods if pod.pool and _ends(pod))
    waits = max(tried, answer, *ending)
    if waits > 0:
        return SchedulerPlan((), waits)
    chosen = min(free, key=lambda pod: (pod.gpus > 0, pod.running, -pod.number))  # GPU pods are the last to come back
    why = "it makes room for the scheduler, which a quota refuses"
    return SchedulerPlan((DeletePod(chosen, why, only_if_unchanged=not observation.has_process(chosen)),))


def outdated(observation: Observation, pod: Pod) -> bool:
    """True if the scheduler pod was made from an older spec."""
    return pod.spec_hash != spec_hash.of_scheduler(observation.written)


def with_default_image(cluster: Cluster, pod: Pod | None, default: str) -> Cluster:
    """The cluster with an image, where its manifest names none: `default`, the operator's; empty: it has none.

    A cluster keeps the default that its live scheduler `pod` was made with: a new one replaces no pod, and comes with
    the next scheduler. From here on it is as if the manifest named the image: so workers that the last scheduler left
    behind are out of date where their image was another.
    """
    if cluster.spec.image is not None:
        return cluster
    made = pod.made_with if pod is not None else None
    image = made.image if made is not None and made.is_default else default
    if not image:
        return cluster
    spec = cluster.spec
    named = _with_image.get((spec,), lambda: spec.model_copy(update={"image": image}), more=image)
    return replace(cluster, spec=named, image_is_default=True)


def in_force(spec: Spec, pod: Pod | None) -> Spec:
    """`spec` with the image and the protocol of its live scheduler `pod`, where that is to be replaced and waits.

    Workers of others might not understand it. So all that an edit changes beside these two reaches them at once, and
    these two with the next scheduler: until then no worker is replaced for them, and new ones are made with those of
    the scheduler. Workers of another protocol cannot join it. Of another image they may: `Drain` is for who knows that
    they do, or would rather have the new image soon.
    """
    kept = kept_for_scheduler(spec, pod)
    if not kept:
        return spec
    return _in_force.get((spec,), lambda: spec.model_copy(update=kept), more=tuple(kept.items()))


def kept_for_scheduler(spec: Spec, pod: Pod | None) -> dict[str, str]:
    """The fields of `spec` that are not in force because of the live scheduler `pod`, with what is instead."""
    if pod is None or pod.made_with is None or pod.spec_hash == spec_hash.of_scheduler(spec):
        return {}
    kept, made = {}, pod.made_with
    its_image_changes = made.scheduler_image != (spec.scheduler.image or spec.image)
    if spec.rollout == "WhenIdle" and its_image_changes and made.image != spec.image:
        kept["image"] = made.image
    if made.protocol != spec.protocol:
        kept["protocol"] = made.protocol
    return kept


def can_be_replaced(observation: Observation) -> bool:
    """True if `rollout` allows the scheduler to be replaced now: with it goes all that it knows."""
    pod = observation.scheduler
    if pod is not None and pod.started == 0.0:
        return True  # it does not run: there is nothing to lose, and the edit is perhaps its cure
    if observation.demand is None:
        return False
    if observation.cluster.spec.rollout == "WhenIdle" or not observation.knows_demand:
        return observation.demand.tasks == 0
    return not any(item.active or item.waiting for item in observation.demand.requirements)


def named_by_service(observation: Observation) -> str:
    """The scheduler pod that the Service has to name, because an older version made it; empty: its label says it."""
    return observation.scheduler.name if observation.scheduler is not None and not observation.scheduler.serves else ""


def _created_after(observation: Observation) -> float | None:
    """Seconds until a scheduler pod may be created, where there is none; None: now."""
    return soonest(_left_after(observation), _memory(observation).not_before - observation.now)


def _left_after(observation: Observation) -> float | None:
    """Seconds until the last old scheduler pod has gone, at the latest; None: there is none.

    Two at once would split the workers between them.
    """
    left = (pod.delete_by + _LOST_SECONDS - observation.now for pod in observation.schedulers if _ends(pod))
    return max(left, default=None)


def _ends(pod: Pod) -> bool:
    return pod.deleting and not pod.finished


def _memory(observation: Observation) -> PoolMemory:
    return observation.memory.get("", PoolMemory())


def _next_name(observation: Observation) -> str:
    taken = {pod.name for pod in observation.schedulers} | _memory(observation).taken
    return names.scheduler_pod(observation.cluster.name, observation.cluster.uid, frozenset(taken))
