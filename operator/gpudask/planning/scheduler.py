"""The scheduler pod: exactly one, replaced when it is gone for good, or out of date and free to go.

And what of the spec is not in force as long as it waits for that.
"""

from __future__ import annotations

from gpudask.api.spec import Spec
from gpudask.desired import names, spec_hash
from gpudask.desired.spec_hash import Memo
from gpudask.planning.actions import Action, CreateScheduler, DeletePod, TakeOffService
from gpudask.planning.observed import Observation, Pod, PoolMemory

# A pod that outlives its deletion by this long stands on a lost node: its successor waits no longer.
_LOST_SECONDS = 10.0
_in_force: Memo[Spec] = Memo(1000)  # each shares all but two fields with the spec that it is made of


def plan_scheduler(seen: Observation) -> tuple[Action, ...]:
    """Create, replace or remove the scheduler pod."""
    return (*_taken_off(seen), *_replaced(seen))


def _taken_off(seen: Observation) -> tuple[Action, ...]:
    """The pods that the Service still leads to, though they are not the scheduler, or not for long.

    Who dials while the last one ends is refused, and dials again. Were the Service to lead to it until it is gone, a
    connection made in its last moment would wait for an answer from an address that nobody has any more.
    """
    others = (pod for pod in seen.schedulers if pod != seen.scheduler)
    return tuple(TakeOffService(pod) for pod in others if pod.serves and not pod.finished)


def _replaced(seen: Observation) -> tuple[Action, ...]:
    current = seen.scheduler
    finished: tuple[Action, ...] = tuple(
        DeletePod(pod, f"it ended: {pod.phase}") for pod in seen.schedulers if pod.finished and not pod.deleting
    )
    if seen.cluster.spec.suspend:
        workers_left = any(pod.pool and not pod.finished for pod in seen.pods)
        return finished if current is None or workers_left else (*finished, DeletePod(current, "suspended"))
    if current is None:
        waits = _leaving(seen) or seen.now < seen.memory.get("", PoolMemory()).not_before
        return finished if waits else (*finished, CreateScheduler(_next_name(seen)))
    extra = (DeletePod(pod, "another scheduler pod is older") for pod in seen.schedulers if pod.live and pod != current)
    if is_replaced_now(seen):
        return (*finished, *extra, DeletePod(current, "its spec was edited"))
    return (*finished, *extra)


def scheduler_wake_after(seen: Observation) -> float | None:
    """When time alone changes what is done about the scheduler: a back-off ends, a lost node is given up."""
    if seen.scheduler is not None or seen.cluster.spec.suspend:
        return None
    moments = [seen.memory.get("", PoolMemory()).not_before]
    moments += [pod.delete_by + _LOST_SECONDS for pod in seen.schedulers if pod.deleting and not pod.finished]
    return min((moment - seen.now for moment in moments if moment > seen.now), default=None)


def is_replaced_now(seen: Observation) -> bool:
    """Whether this very pass ends the scheduler, for a newer one."""
    return seen.scheduler is not None and outdated(seen, seen.scheduler) and free_to_go(seen)


def outdated(seen: Observation, pod: Pod) -> bool:
    """Whether the scheduler pod was made from an older spec."""
    return pod.spec_hash != spec_hash.of_scheduler(seen.written)


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


def free_to_go(seen: Observation) -> bool:
    """Whether `rollout` allows the scheduler to be replaced now: with it goes all that it knows."""
    pod = seen.scheduler
    if pod is not None and pod.started == 0.0:
        return True  # it does not run: there is nothing to lose, and the edit is perhaps its cure
    if seen.demand is None:
        return False
    if seen.cluster.spec.rollout == "WhenIdle" or not seen.counts:
        return seen.demand.tasks == 0
    return not any(item.active or item.waiting for item in seen.demand.requirements)


def named_by_service(seen: Observation) -> str:
    """The scheduler pod that the Service has to name, because an older version made it; empty: its label says it."""
    return seen.scheduler.name if seen.scheduler is not None and not seen.scheduler.serves else ""


def _leaving(seen: Observation) -> bool:
    """Whether an old scheduler pod still ends: two at once would split the workers between them."""
    return any(
        pod.deleting and not pod.finished and seen.now < pod.delete_by + _LOST_SECONDS for pod in seen.schedulers
    )


def _next_name(seen: Observation) -> str:
    taken = {pod.name for pod in seen.schedulers} | seen.memory.get("", PoolMemory()).taken
    return names.scheduler_pod(seen.cluster.name, seen.cluster.uid, frozenset(taken))
