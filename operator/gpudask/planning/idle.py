"""`spec.idle`: deletion of a cluster that is unused (`deleteAfter`) or has no client (`shutdownAfterDisconnect`).

And of GPU pods whose demand is unknown (`frozenFor`). When a pool's idle pods go, `idleTimeout`, is in autoscaling.py.

Nothing is deleted because a read failed. Pools whose sizes stay although they might be wrong, because the scheduler
does not answer or cannot drain, are frozen. Only a pool that holds GPUs is given up then, and only after
`idle.frozenFor`. Deletion: docs/adr/0023 and 0038.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpudask.api.reasons import Reason
from gpudask.planning.actions import Deletion, soonest
from gpudask.planning.observed.observation import Observation
from gpudask.planning.observed.pods import Pod
from gpudask.planning.pool_view import PoolView
from gpudask.scaling import retirement
from gpudask.scaling.sizing import Size

# A freeze that lasts is reported. Where the scheduler pod itself is not ready, it may still pull its image.
_REPORT_SECONDS, _START_SECONDS = 20.0, 120.0
# A program that holds a cluster without a client is seen every 10 s, more rarely after failures, and the answer that
# says so is up to 30 s old.
REPORT_DISCONNECTED_SECONDS = 100.0


def idle_seconds(observation: Observation) -> float | None:
    """Seconds for which the scheduler has had nothing to do; None: not known, and nothing is deleted."""
    demand = observation.demand
    if demand is None or demand.idle_seconds is None or not observation.knows_demand:
        return None
    works = any(item.waiting or item.active for item in demand.requirements)
    if works or any("actor" in worker.blockers for worker in demand.workers):
        return 0.0
    return demand.idle_seconds + max(0.0, observation.now - observation.demand_at)


def disconnected_seconds(observation: Observation) -> float | None:
    """Seconds for which no client was seen, while this operator could have seen one; None: not known now.

    What keeps the operator from the scheduler, such as an API server that is away and costs it the lead, may keep the
    clients from it too. So a time before the present contact counts for nothing. A scheduler that lies can be
    deleted no sooner, therefore, than the spec's duration after it was first heard.
    """
    demand = observation.demand
    if demand is None or demand.clients is None:
        return None
    if demand.clients.connected:
        return 0.0
    absent = demand.clients.absent_seconds + max(0.0, observation.now - observation.demand_at)
    return min(absent, max(0.0, observation.now - observation.scheduler_since))


def deletion(observation: Observation) -> Deletion:
    """The decision to delete the cluster. A suspended one is kept."""
    if observation.cluster.spec.suspend:
        return Deletion()
    decisions = (_of_unused(observation), _of_disconnected(observation))
    due = next((each for each in decisions if each.why), None)
    return due or Deletion(requeue_after=soonest(*(each.requeue_after for each in decisions)))


def _of_disconnected(observation: Observation) -> Deletion:
    idle, absent = observation.cluster.spec.idle, disconnected_seconds(observation)
    if idle.disconnect_seconds is None or absent is None:
        return Deletion()
    if absent < idle.disconnect_seconds:
        return Deletion(requeue_after=soonest(idle.disconnect_seconds - absent, REPORT_DISCONNECTED_SECONDS - absent))
    return Deletion(
        f"no client has been connected for {absent:.0f} s, and spec.idle.shutdownAfterDisconnect is"
        f" {idle.shutdown_after_disconnect}",
        reason=Reason.DISCONNECTED_TOO_LONG,
    )


def _of_unused(observation: Observation) -> Deletion:
    idle, unused = observation.cluster.spec.idle, idle_seconds(observation)
    if idle.delete_after_seconds is None or unused is None:
        return Deletion()
    if unused < idle.delete_after_seconds:
        return Deletion(requeue_after=idle.delete_after_seconds - unused)
    return Deletion(
        f"its scheduler has had nothing to do for {unused:.0f} s, and spec.idle.deleteAfter is {idle.delete_after}"
    )


@dataclass(frozen=True, slots=True)
class Freeze:
    """The reason why a pool's size cannot follow what is wanted now; empty where it can.

    `is_given_up`: it has lasted for longer than the pool's GPUs may be held without use.
    """

    why: str = ""
    is_given_up: bool = False
    requeue_after: float | None = None


def freeze(view: PoolView, size: Size) -> Freeze:
    """The freeze of the pool, which is to have `size`."""
    observation = view.observation
    why = _why_frozen(view, size)
    if not why:
        return Freeze()
    since = observation.frozen_at.get(view.pool.name)
    lasts = 0.0 if since is None else observation.now - since
    given_up_after = None
    if view.pool.gpu is not None and observation.cluster.spec.idle.frozen_for_seconds is not None:
        given_up_after = observation.cluster.spec.idle.frozen_for_seconds - lasts
    return Freeze(
        why,
        is_given_up=since is not None and given_up_after is not None and given_up_after <= 0,
        requeue_after=soonest(_report_after_seconds(observation) - lasts, given_up_after),
    )


def frozen_since(view: PoolView, why: str) -> float | None:
    """The beginning of the pool's freeze, for the reason `why`, once it has lasted; None: do not report it.

    A scheduler that restarts is silent for some seconds.
    """
    since = view.observation.frozen_at.get(view.pool.name)
    if not why or since is None or view.observation.now - since < _report_after_seconds(view.observation):
        return None
    return since


def _report_after_seconds(observation: Observation) -> float:
    """Seconds after which a freeze is reported."""
    is_ready = observation.scheduler is not None and observation.scheduler.ready
    return _REPORT_SECONDS if is_ready else _START_SECONDS


def least(view: PoolView, size: Size) -> int:
    """The number of pods that a given-up pool keeps: its size, or its minimum where the demand is not known."""
    limits = view.pool.autoscale
    if limits is not None and size.set_by == "autoscale" and not view.observation.knows_demand:
        return min(size.pods, limits.min)
    return size.pods


def to_go(view: PoolView, keep: int) -> list[Pod]:
    """The pods to delete of a given-up pool: the retiring ones, and those beyond `keep`."""
    by_name = {pod.name: pod for pod in view.staying}
    chosen = retirement.surplus(view.candidates(view.staying), len(view.staying) - keep)
    return [*view.leaving, *(by_name[candidate.pod] for candidate in chosen)]


def _why_frozen(view: PoolView, size: Size) -> str:
    observation = view.observation
    why = _why_unheard(observation)
    if not why:
        return ""
    if size.set_by == "autoscale" and not observation.knows_demand:
        return why
    if observation.cluster.spec.suspend and not observation.can_drain:
        return ""  # a suspended cluster ends without anybody to drain it
    drains = any(observation.has_process(pod) for pod in view.leaving)
    return why if drains or len(view.staying) > size.pods else ""


def _why_unheard(observation: Observation) -> str:
    if observation.demand is None:
        if observation.demand_problem:
            return observation.demand_problem
        if observation.scheduler is None:
            return "there is no scheduler pod"
        return "the scheduler has not been heard yet" if observation.scheduler.running else "the scheduler starts"
    off = ((name, observation.demand.features.get(name, "")) for name in ("demand", "retire"))
    return next((f"{name} is off: {why}" for name, why in off if why), "")
