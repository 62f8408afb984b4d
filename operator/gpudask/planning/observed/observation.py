"""The input of a pass: the cluster, its pods, its scheduler's last answer, and the memory of its loop."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gpudask.api.reasons import Reason
from gpudask.api.resource import Cluster
from gpudask.api.spec import Spec
from gpudask.planning.observed.clocks import AGREED, Clocks
from gpudask.planning.observed.pods import Pod, current_scheduler
from gpudask.scaling.demand import Demand, Worker
from gpudask.scaling.sizing import WARM_UP_SECONDS


@dataclass(frozen=True, slots=True)
class Failure:
    """A step of a pass that fails, with the API server's message. `since` and `next_try`: seconds since the epoch."""

    what: str
    reason: Reason
    message: str
    since: float
    next_try: float


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """The loop's memory of a pool between passes. Losing it costs nothing but a quicker retry.

    `start_seconds`: how long the last pod took from its creation until its workers were registered. `held_seconds`:
    for how long the first one held its node until then, when the pool last had none before it (`planning.pool_view`).
    `not_before`: when the next pod may be created at the soonest. `refused_since`: since when it is refused; 0.0 where
    that holds nothing back. `room_at`: of a scheduler that a quota refuses, when a pod of its cluster was last gone.
    """

    size: int | None = None
    start_seconds: float | None = None
    held_seconds: float = 0.0
    not_before: float = 0.0
    refusal: str = ""
    refusal_reason: str = ""
    refused_since: float = 0.0
    room_at: float = 0.0
    taken: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that a pass decides on. Times are seconds since the epoch, by the operator's clock, which never jumps.

    `clocks`: the others, beside that. `unanswered_at`: when the API server last was found to answer nobody; no object
    of it changed just before.
    `pods_known_at`: when a watch last told anything of pods, and so up to when they are known; -inf: that is unknown.
    `scheduler`: the live scheduler pod, the oldest should there be several.
    `demand` is None while the scheduler does not answer; `demand_at`: when it did. `scheduler_since`: since when
    this scheduler process is known. `preload_unavailable`: the scheduler answers, but its preload does not, and never
    will.
    `failures`: what fails again and again, such as a Service that cannot be applied, the oldest first.
    `joined`: worker's name -> when it was registered; one that is missing joined long ago. `first_joined`: the same,
    but not forgotten when its process is started again in its pod, by Dask's nanny.
    `refused`: Dask names of pods that the scheduler would not retire. `busy_at`: pod's uid -> when it was last seen at
    work, as `planning.eviction` means it. `frozen_at`: pool -> since when its size cannot follow what is wanted.
    `known_starts`: pool -> seconds that pods just like its own took to start lately, in other clusters.
    `mirror`: why the stock Dask client does not find the cluster, empty where it does; None: nobody asked for that.
    `network`: why there is no NetworkPolicy, empty where there is; None: the chart has them switched off.
    `wanted`: the spec as it is written, where `cluster` has what of it is in force while the scheduler waits for its
    rollout (`planning.scheduler.in_force`); None: it is the same.
    """

    cluster: Cluster
    pods: tuple[Pod, ...]
    now: float
    demand: Demand | None = None
    demand_at: float = 0.0
    demand_problem: str = ""
    preload_unavailable: bool = False
    failures: tuple[Failure, ...] = ()
    scheduler_since: float = 0.0
    refused: frozenset[str] = frozenset()
    memory: dict[str, PoolMemory] = field(default_factory=dict)
    joined: dict[str, float] = field(default_factory=dict)
    first_joined: dict[str, float] = field(default_factory=dict)
    busy_at: dict[str, float] = field(default_factory=dict)
    frozen_at: dict[str, float] = field(default_factory=dict)
    known_starts: dict[str, float] = field(default_factory=dict)
    mirror: str | None = None
    network: str | None = None
    clocks: Clocks = AGREED
    unanswered_at: float = -math.inf
    pods_known_at: float = -math.inf
    wanted: Spec | None = None
    scheduler: Pod | None = field(default=None, init=False, repr=False, compare=False)
    _by_pool: dict[str, list[Pod]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the pods: a pass asks for the scheduler, and for those of every pool, many times."""
        for pod in self.pods:
            self._by_pool.setdefault(pod.pool, []).append(pod)
        object.__setattr__(self, "scheduler", current_scheduler(self.schedulers))

    @property
    def wall_time(self) -> float:
        """The time by which people ask for something: this machine's."""
        return self.now + self.clocks.wall_ahead

    @property
    def written(self) -> Spec:
        """The spec as people wrote it."""
        return self.wanted or self.cluster.spec

    @property
    def schedulers(self) -> tuple[Pod, ...]:
        """The scheduler pods, live or not."""
        return self.workers("")

    @property
    def scheduler_runs(self) -> bool:
        """True if a scheduler process runs now: without one nothing waits for any worker's work."""
        return self.scheduler is not None and self.scheduler.running

    @property
    def can_drain(self) -> bool:
        """True if workers can be drained: the scheduler runs, and its preload can do it, now or soon."""
        off = self.demand is not None and bool(self.demand.features.get("retire"))
        return self.scheduler_runs and not self.preload_unavailable and not off

    @property
    def knows_demand(self) -> bool:
        """True if the demand is known: an empty one from a scheduler that cannot count says nothing."""
        return self.demand is not None and not self.demand.features.get("demand")

    def has_process(self, pod: Pod) -> bool:
        """True if `pod` has a process that may hold something: by the kubelet, or by the scheduler, if sooner."""
        return pod.running or bool(self.registered(pod))

    def warm_up_seconds(self, pod: Pod) -> float:
        """Seconds that the newest worker of `pod` still has to end a first task; 0.0: all are warmed up."""
        joined = max((self.joined.get(worker.name, -math.inf) for worker in self.registered(pod)), default=-math.inf)
        return max(0.0, joined + WARM_UP_SECONDS - self.now)

    def unregistered_seconds(self, pod: Pod) -> float:
        """Seconds for which a pod that runs, or ran, could have registered its workers, and did not."""
        ended = pod.ended.at if pod.ended is not None else 0.0
        return max(0.0, self.now - max(pod.started, ended, self.scheduler_since))

    def idle_seconds(self, worker: Worker) -> float:
        """Seconds for which `worker` has had no work of its pool's own by now."""
        return 0.0 if worker.own else worker.idle_seconds + max(0.0, self.now - self.demand_at)

    def registered(self, pod: Pod) -> tuple[Worker, ...]:
        """The Dask workers of `pod` that the scheduler knows."""
        return self.demand.workers_of(pod.dask_name) if self.demand else ()

    @property
    def pods_of_removed_pools(self) -> tuple[Pod, ...]:
        """The worker pods of pools that the spec no longer has."""
        known = {pool.name for pool in self.cluster.spec.pools}
        return tuple(pod for pod in self.pods if pod.pool and pod.pool not in known)

    def workers(self, pool: str) -> tuple[Pod, ...]:
        """The worker pods of a pool, live or not."""
        return tuple(self._by_pool.get(pool, ()))
