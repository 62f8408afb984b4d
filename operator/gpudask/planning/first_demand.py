"""How long a pool's first demand waits: for its first pod, for its first worker, and for its first result.

It begins where tasks want a pool that has no pod, and ends with the first task that one of its workers has done. It
ends without a measure where the pool, or the demand before there is a pod, is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from gpudask.planning.observed.observation import Observation
from gpudask.scaling.assignment import Share


class Step(StrEnum):
    """What a first demand waits for."""

    POD = "pod"
    WORKER = "worker"
    RESULT = "result"


@dataclass(frozen=True, slots=True)
class FirstDemand:
    """A first demand that waits. `since`: seconds since the epoch. `reached`: what it has had so far."""

    since: float
    reached: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """A first demand after a pass; None: none waits. `steps`: those just reached, with the seconds that each took."""

    waiting: FirstDemand | None = None
    steps: tuple[tuple[Step, float], ...] = ()


def advance(observation: Observation, pool: str, share: Share, before: FirstDemand | None) -> Progress:
    """The first demand of `pool`, whose demand is `share`, as it is now; `before`: as it was after the last pass."""
    pods = [pod for pod in observation.workers(pool) if not pod.finished]
    if before is None:
        if pods or not share.unrunnable or not observation.knows_demand:
            return Progress()
        before = FirstDemand(observation.demand_at)
    if not pods:
        gave_up = bool(before.reached) or (observation.knows_demand and not (share.unrunnable or share.processing))
        return Progress(None if gave_up else before)
    workers = [worker for pod in pods for worker in observation.registered(pod)]
    joined = min((observation.first_joined.get(w.name, observation.now) for w in workers), default=None)
    done = observation.demand_at if any(worker.tasks_done for worker in workers) else None
    # The API server stamps a pod's creation in whole seconds: when it was first seen here is nearer to it.
    at = {Step.POD: observation.now, Step.WORKER: joined, Step.RESULT: done}
    new = [(step, max(0.0, when - before.since)) for step, when in at.items() if when is not None]
    steps = tuple((step, seconds) for step, seconds in new if step not in before.reached)
    waiting = replace(before, reached=(*before.reached, *(step for step, _ in steps)))
    return Progress(None if Step.RESULT in waiting.reached else waiting, steps)
