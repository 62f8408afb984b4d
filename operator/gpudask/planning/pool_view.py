"""A pool in an observation: its section of the spec, its pods, how long they took to start, and its memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from gpudask.api.pool import Pool
from gpudask.api.spec import Override
from gpudask.desired import spec_hash
from gpudask.planning.observed.observation import Observation, PoolMemory
from gpudask.planning.observed.pods import Pod
from gpudask.planning.overrides import active_override
from gpudask.scaling.assignment import UNKNOWN_START_SECONDS
from gpudask.scaling.retirement import Candidate

# A worker that is up but unknown to the scheduler for this long has nothing that anybody waits for.
UNREGISTERED_SECONDS = 15.0
# A pod that waited longer than this waited for room, not for a node that an autoscaler brings: no measure for the next.
LONGEST_START_SECONDS = 600.0


@dataclass(frozen=True, eq=False)
class PoolView:
    """`pool` in `observation`. What is derived is worked out once, when it is first asked for."""

    observation: Observation
    pool: Pool

    @cached_property
    def memory(self) -> PoolMemory:
        """The loop's memory of the pool."""
        return self.observation.memory.get(self.pool.name, PoolMemory())

    @cached_property
    def override(self) -> Override | None:
        """The override that has not expired."""
        spec, now = self.observation.cluster.spec, self.observation.wall_time
        return active_override(spec.overrides, self.pool.name, now)

    @cached_property
    def spec_hash(self) -> str:
        """The hash of a pod that is made now."""
        return spec_hash.of_worker(self.observation.cluster.spec, self.pool)

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        """All pods, live or not."""
        return self.observation.workers(self.pool.name)

    @cached_property
    def staying(self) -> tuple[Pod, ...]:
        """The live pods that are not retiring, by number."""
        return tuple(sorted((pod for pod in self.pods if pod.stays), key=lambda pod: pod.number))

    @cached_property
    def leaving(self) -> tuple[Pod, ...]:
        """The live pods that are retiring."""
        return tuple(pod for pod in self.pods if pod.leaves)

    @cached_property
    def start_times(self) -> StartTimes:
        """The start times of its pods."""
        return StartTimes.of(self.observation, self.pool.name)

    @property
    def release_after_seconds(self) -> float | None:
        """Seconds of idleness after which a pod's results may be released; None: never."""
        return self.pool.held_data.release_after_seconds if self.pool.held_data else None

    def has_joined(self, pod: Pod) -> bool:
        """True if a pod has registered workers; while the demand is not known, if it is ready."""
        return has_joined(self.observation, pod)

    def is_complete(self, pod: Pod) -> bool:
        """True if all workers of a pod are registered: of one that an older spec made, if any is."""
        if not self.observation.knows_demand:
            return pod.ready
        wanted = self.pool.workers_per_pod if pod.spec_hash == self.spec_hash else 1
        return len(self.observation.registered(pod)) >= wanted

    def device_failure(self, pod: Pod) -> str:
        """The reason why a worker of `pod` cannot use its device any more, empty where all are healthy.

        A pool without GPUs has no device that could fail: tasks that look for one there are wrong, not the pod.
        """
        if self.pool.gpu is None:
            return ""
        return next((worker.sick for worker in self.observation.registered(pod) if worker.sick), "")

    def candidates(self, pods: Iterable[Pod]) -> list[Candidate]:
        """These pods as the retirement policy sees them, with how many of the cluster's pods share their nodes."""
        on_nodes = Counter(pod.node for pod in self.observation.pods if pod.live and pod.node)
        return [replace(self.candidate(pod), node=pod.node, neighbours=on_nodes[pod.node]) for pod in pods]

    def candidate(self, pod: Pod) -> Candidate:
        """A pod as the retirement policy sees it. One that ran, but registered no worker, is idle since it could have.

        A container that waits to start again is no pending pod: its workers left with a scheduler that restarted, most
        likely, and are back soon. One that failed, and is not back soon, is as good as pending.
        """
        observation = self.observation
        workers = observation.registered(pod)
        unheard = observation.unregistered_seconds(pod) if observation.knows_demand and pod.ran else 0.0
        crashed = pod.ended is not None and pod.ended.exit_code != 0 and unheard >= UNREGISTERED_SECONDS
        return Candidate(
            pod=pod.name,
            number=pod.number,
            pending=not observation.has_process(pod) and (not pod.ran or crashed),
            idle_seconds=min((observation.idle_seconds(worker) for worker in workers), default=unheard),
            busy=any(worker.own for worker in workers) if workers else unheard < UNREGISTERED_SECONDS,
            held_bytes=sum(worker.held_bytes for worker in workers),
            blockers=tuple(sorted({blocker for worker in workers for blocker in worker.blockers})),
        )

    def unregistered_after(self, pod: Pod) -> float | None:
        """Seconds until a pod without registered workers counts as empty; None: it has some, or has not run."""
        if not pod.ran or self.observation.demand is None or self.observation.registered(pod):
            return None
        return UNREGISTERED_SECONDS - self.observation.unregistered_seconds(pod)


def views(observation: Observation) -> dict[str, PoolView]:
    """All pools of the spec, by name."""
    return {pool.name: PoolView(observation, pool) for pool in observation.cluster.spec.pools}


def has_joined(observation: Observation, pod: Pod) -> bool:
    """True if a pod has registered workers; while the demand is not known, if it is ready."""
    return bool(observation.registered(pod)) if observation.knows_demand else pod.ready


@dataclass(frozen=True, slots=True)
class Start:
    """A pod whose workers were all there at `at`: `seconds` after its creation, `held_seconds` on its node."""

    at: float
    seconds: float
    held_seconds: float
    spec_hash: str


@dataclass(frozen=True, slots=True)
class StartTimes:
    """The start times of a pool, all in seconds: as long as they took, the next pod is taken to need.

    `starts`: those of the pods that are there, the last one last. `memory`: of the pool. `elsewhere`: how long pods
    just like its own took lately in other clusters; None: there were none.
    """

    starts: tuple[Start, ...]
    memory: PoolMemory
    elsewhere: float | None = None

    @classmethod
    def of(cls, observation: Observation, pool: str) -> StartTimes:
        """Those of the pool of this name.

        Pods whose workers were there when this scheduler was first heard tell nothing, and neither do those that took
        longer than `LONGEST_START_SECONDS`.
        """
        memory = observation.memory.get(pool, PoolMemory())
        return cls(_starts(observation, pool), memory, observation.known_starts.get(pool))

    @property
    def last(self) -> float | None:
        """The time of the last pod from its creation until all of its workers were registered."""
        return self.starts[-1].seconds if self.starts else self.memory.start_seconds

    @property
    def expected(self) -> float | None:
        """The time that the next pod is taken to need: that of the last one; for the first, of one like it elsewhere.

        That can only be sooner than where nobody knows: what was slow elsewhere may have waited for a node, or for
        others' pods.
        """
        if self.last is None and self.elsewhere is not None:
            return min(self.elsewhere, UNKNOWN_START_SECONDS)
        return self.last

    @property
    def slowest(self) -> float | None:
        """The longest start of a pod that exists: one, as a rule, for which a node had to come."""
        return max((start.seconds for start in self.starts), default=self.last)

    @property
    def held(self) -> float:
        """The time for which a pod may hold its node before it can work: it pulls its image; 0.0 where it is not known.

        The longest of those that are there. Where none is, it is the start of the first one when the pool last came
        from nothing: its nodes may be gone since.
        """
        return max((start.held_seconds for start in self.starts), default=self.memory.held_seconds)


def _starts(observation: Observation, pool: str) -> tuple[Start, ...]:
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
