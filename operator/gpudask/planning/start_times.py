"""How long pods of a pool took to start, as far as it was seen: so long the next one is taken to need."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpudask.planning.observed.observation import Observation, PoolMemory
from gpudask.scaling.lookahead import LONGEST_START_SECONDS, UNKNOWN_START_SECONDS


@dataclass(frozen=True, slots=True)
class Start:
    """A pod whose workers were all there at `at`: `seconds` after its creation, `held_seconds` on its node."""

    at: float
    seconds: float
    held_seconds: float
    spec_hash: str


@dataclass(frozen=True, slots=True)
class StartTimes:
    """What is known of a pool's starts, all in seconds.

    `seen`: the starts of the pods that are there, the last one last. `memory`: of the pool. `elsewhere`: how long pods
    just like its own took lately in other clusters; None: there were none.
    """

    seen: tuple[Start, ...]
    memory: PoolMemory
    elsewhere: float | None = None

    @classmethod
    def of(cls, observation: Observation, pool: str) -> StartTimes:
        """Those of the pool of this name.

        Pods whose workers were there when this scheduler was first heard tell nothing, and neither do those that took
        longer than `LONGEST_START_SECONDS`.
        """
        memory = observation.memory.get(pool, PoolMemory())
        return cls(_seen(observation, pool), memory, observation.known_starts.get(pool))

    @property
    def last(self) -> float | None:
        """How long the last pod took from its creation until all of its workers were registered."""
        return self.seen[-1].seconds if self.seen else self.memory.start_seconds

    @property
    def expected(self) -> float | None:
        """How long the next pod is taken to need: as the last one; for the pool's first, as one like it elsewhere.

        That can only be sooner than where nobody knows: what was slow elsewhere may have waited for a node, or for
        others' pods.
        """
        if self.last is None and self.elsewhere is not None:
            return min(self.elsewhere, UNKNOWN_START_SECONDS)
        return self.last

    @property
    def slowest(self) -> float | None:
        """The longest that a pod which is there took so: one, as a rule, for which a node had to come."""
        return max((start.seconds for start in self.seen), default=self.last)

    @property
    def held(self) -> float:
        """For how long a pod may hold its node before it can work: it pulls its image; 0.0 where nobody knows.

        The longest of those that are there. Where none is, it is the start of the first one when the pool last came
        from nothing: its nodes may be gone since.
        """
        return max((start.held_seconds for start in self.seen), default=self.memory.held_seconds)


def _seen(observation: Observation, pool: str) -> tuple[Start, ...]:
    complete: dict[str, float] = {}
    pods = {pod.dask_name: pod for pod in observation.workers(pool)}
    for worker in observation.demand.workers if observation.demand else ():
        if worker.pool == pool:
            of = worker.name if worker.name in pods else worker.name.rpartition("-")[0]
            complete[of] = max(complete.get(of, -math.inf), observation.first_joined.get(worker.name, -math.inf))
    found = [
        Start(at, at - pod.created, at - pod.placed if pod.placed else 0.0, pod.spec_hash)
        for name, at in complete.items()
        if at > observation.scheduler_since and (pod := pods.get(name)) is not None and not pod.restarts
    ]
    return tuple(sorted((each for each in found if each.seconds <= LONGEST_START_SECONDS), key=lambda start: start.at))
