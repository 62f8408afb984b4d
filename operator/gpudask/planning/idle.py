"""What is held for nobody: an unused cluster (`idle.deleteAfter`), and pools nobody can decide on (`idle.frozenFor`).

Nothing is deleted because a read failed. Pools whose sizes stay although they might be wrong, because the scheduler is
not heard or cannot drain, are frozen. Only a pool that holds GPUs is given up then, and only after `idle.frozenFor`.
Of deletion docs/adr/0023 tells.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpudask.planning.actions import soonest
from gpudask.planning.observed.observation import Observation
from gpudask.planning.observed.pods import Pod
from gpudask.planning.pool_view import PoolView
from gpudask.scaling import retirement
from gpudask.scaling.sizing import Size

# A freeze that lasts is told. Where the scheduler pod itself is not ready, it may still pull its image.
_REPORT_SECONDS, _START_SECONDS = 20.0, 120.0


@dataclass(frozen=True, slots=True)
class Deletion:
    """Why the cluster is to be deleted now, empty where it stays; and in how many seconds it may be."""

    why: str = ""
    requeue_after: float | None = None


def idle_seconds(observation: Observation) -> float | None:
    """For how long the scheduler has had nothing to do by now; None where nobody knows: then nothing is deleted."""
    demand = observation.demand
    if demand is None or demand.idle_seconds is None or not observation.knows_demand:
        return None
    works = any(item.waiting or item.active for item in demand.requirements)
    if works or any("actor" in worker.blockers for worker in demand.workers):
        return 0.0
    return demand.idle_seconds + max(0.0, observation.now - observation.demand_at)


def deletion(observation: Observation) -> Deletion:
    """Whether the cluster is to be deleted. One that is suspended was put aside to be kept."""
    idle, unused = observation.cluster.spec.idle, idle_seconds(observation)
    if idle.delete_after_seconds is None or unused is None or observation.cluster.spec.suspend:
        return Deletion()
    if unused < idle.delete_after_seconds:
        return Deletion(requeue_after=idle.delete_after_seconds - unused)
    return Deletion(
        f"its scheduler has had nothing to do for {unused:.0f} s, and spec.idle.deleteAfter is {idle.delete_after}"
    )


@dataclass(frozen=True, slots=True)
class Freeze:
    """Why the size of a pool cannot follow what is wanted now; empty where it can.

    `is_given_up`: it has lasted for longer than the pool's GPUs may be held without use.
    """

    why: str = ""
    is_given_up: bool = False
    requeue_after: float | None = None


def freeze(view: PoolView, size: Size) -> Freeze:
    """Whether the pool, which is to have `size`, is frozen."""
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
    """Since when the pool, which is frozen for the reason `why`, is, once that has lasted; None: it is not to be told.

    A scheduler that restarts is silent for some seconds.
    """
    since = view.observation.frozen_at.get(view.pool.name)
    if not why or since is None or view.observation.now - since < _report_after_seconds(view.observation):
        return None
    return since


def _report_after_seconds(observation: Observation) -> float:
    """After how long a freeze is told."""
    is_ready = observation.scheduler is not None and observation.scheduler.ready
    return _REPORT_SECONDS if is_ready else _START_SECONDS


def least(view: PoolView, size: Size) -> int:
    """Pods that stay of a pool that is given up: its size, or its minimum where nobody knows the demand."""
    limits = view.pool.autoscale
    if limits is not None and size.set_by == "autoscale" and not view.observation.knows_demand:
        return min(size.pods, limits.min)
    return size.pods


def to_go(view: PoolView, keep: int) -> list[Pod]:
    """The pods of a pool that is given up which go: those that leave already, and those beyond `keep`."""
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
