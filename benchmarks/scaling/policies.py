"""Policies that size the pools: the operator's own planning, a policy as Dask's `Adaptive`, and fixed pools."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial

from benchmarks.scaling.kubernetes import EPOCH
from benchmarks.scaling.simulation import Policy, Simulation
from gpudask.planning.actions import (
    Action,
    CreateScheduler,
    CreateWorker,
    DeletePod,
    MarkProtected,
    MarkRetiring,
    Plan,
    RemoveFromService,
)
from gpudask.planning.observed.observation import Observation
from gpudask.planning.observed.pods import Pod
from gpudask.planning.plan import plan
from gpudask.planning.pool_view import StartTimes
from gpudask.reconcile.loop_memory import Memory

_EDGE_SECONDS, _COUNTS_SECONDS = 0.05, 1.0
_SOONEST_SECONDS = 0.01

Watch = Callable[[Observation, Plan], None]
TARGET_DURATION_SECONDS = 5.0
INTERVAL_SECONDS = 1.0
WAIT_COUNT = 3
UNKNOWN_SECONDS = 0.5


class Gpudask(Policy):
    """The operator's own planning, pass by pass. Nothing of it is written anew here.

    As in the operator's loop, a pass is made soon after each edge and pod change, for plain counts once a second (as
    the preload says them), and when the plan asks for one. `watch` sees every pass: for the tests.
    """

    title = "gpudask"

    def __init__(self, watch: Watch | None = None) -> None:
        self._watch = watch
        self._memory = Memory()
        self._refused: frozenset[str] = frozenset()
        self._told: dict[str, bool] = {}
        self._due = float("inf")

    def begin(self, simulation: Simulation) -> None:
        """Make the first pass now."""
        self._simulation = simulation
        simulation.wake = self._wake
        self._pass_in(0.0)

    def _wake(self, edge: bool) -> None:
        self._pass_in(_EDGE_SECONDS if edge else _COUNTS_SECONDS)

    def _pass_in(self, seconds: float) -> None:
        due = self._simulation.clock.now + seconds
        if due < self._due:
            self._due = due
            self._simulation.clock.after(seconds, partial(self._on_due, due))

    def _on_due(self, due: float) -> None:
        if due == self._due:  # else an earlier one came instead
            self._due = float("inf")
            self._pass()

    def _pass(self) -> None:
        seen = self._observe()
        planned = plan(seen)
        if self._watch is not None:
            self._watch(seen, planned)
        for name, pool in planned.pools.items():
            self._memory.record_starts(name, StartTimes.of(seen, name).starts, empty=not seen.workers(name))
            if not pool.size.is_guess:
                self._memory.record_size(name, pool.size.pods)
        for action in planned.actions:
            self._carry_out(action)
        self._tell()
        if planned.requeue_after is not None:
            self._pass_in(max(_SOONEST_SECONDS, planned.requeue_after))

    def _observe(self) -> Observation:
        simulation = self._simulation
        joined = {name: EPOCH + process.joined for name, process in simulation.scheduler.by_name.items()}
        return Observation(
            simulation.trace.cluster,
            tuple(sorted(simulation.kubernetes.pods.values(), key=lambda pod: pod.name)),
            simulation.kubernetes.now,
            demand=simulation.scheduler.listen(),
            demand_at=simulation.kubernetes.now,
            scheduler_since=EPOCH - 50.0,
            joined=joined,
            first_joined=joined,
            refused=self._refused,
            memory=dict(self._memory.pools),
        )

    def _carry_out(self, action: Action) -> None:
        match action:
            case CreateWorker(pool, number):
                self._simulation.create(pool, number)
            case DeletePod(pod, _, only_if_unchanged):
                self._simulation.delete(pod, only_if_unchanged=only_if_unchanged)
            case MarkRetiring(pod, retirement):
                self._simulation.count_action(pod)
                self._simulation.kubernetes.annotate(pod.name, retirement)
            case CreateScheduler() | MarkProtected() | RemoveFromService():
                raise AssertionError("the scheduler is there, and marks come apart")

    def _tell(self) -> None:
        """Tell the scheduler who retires, if that changed."""
        retiring = {
            pod.dask_name: pod.retirement.if_idle and not pod.deleting
            for pod in self._simulation.kubernetes.pods.values()
            if pod.pool and pod.retirement is not None
        }
        if retiring != self._told:
            self._told = retiring
            self._refused = self._simulation.scheduler.retire(retiring)


class Adaptive(Policy):
    """As Dask's `Adaptive`, one for each pool, and told of the pool's own demand, which the real one cannot see.

    From distributed 2026.7.1, `Scheduler.adaptive_target`, `workers_to_close` and `AdaptiveCore`: the target is the
    total work by the target duration (5 s by default; unknown tasks count 0.5 s), at most the tasks that are ready;
    looked at once a second; what is above it is closed once three looks in a row say so: first those that have not
    come, then idle ones. Busy workers are spared here.
    """

    title = "adaptive"

    def __init__(self) -> None:
        self._looks: Counter[str] = Counter()  # pod's uid -> looks in a row that would close it

    def begin(self, simulation: Simulation) -> None:
        """Look at once, then every second."""
        self._simulation = simulation
        self._look()

    def _look(self) -> None:
        for name, pool in self._simulation.trace.by_name.items():
            if pool.autoscale is not None:
                target = min(max(self._target(name), pool.autoscale.min), pool.autoscale.max)
                self._move(name, target)
        self._simulation.clock.after(INTERVAL_SECONDS, self._look)

    def _target(self, pool: str) -> int:
        trace = self._simulation.trace
        seconds, pods = 0.0, 0.0
        for resources, able in trace.serving.items():
            if able[:1] == (pool,):
                work, tasks = self._simulation.scheduler.work(resources, unknown_seconds=UNKNOWN_SECONDS)
                seconds += work / trace.slots(pool, resources)
                pods += tasks / trace.slots(pool, resources)
        return min(math.ceil(seconds / TARGET_DURATION_SECONDS), math.ceil(pods))

    def _move(self, pool: str, target: int) -> None:
        pods = [pod for pod in self._simulation.kubernetes.pods.values() if pod.pool == pool and not pod.deleting]
        for _ in range(target - len(pods)):
            self._simulation.create(pool)
        surplus = self._surplus(pods, len(pods) - target)
        self._looks = Counter({uid: n for uid, n in self._looks.items() if uid in surplus or uid not in _uids(pods)})
        for uid, pod in surplus.items():
            self._looks[uid] += 1
            if self._looks[uid] >= WAIT_COUNT:
                del self._looks[uid]
                self._simulation.delete(pod)

    def _surplus(self, pods: list[Pod], count: int) -> dict[str, Pod]:
        """At most `count` that have not come or are idle."""
        coming = [pod for pod in pods if not self._simulation.scheduler.of_pod(pod)]
        idle = [
            pod
            for pod in pods
            if (processes := self._simulation.scheduler.of_pod(pod)) and not any(p.running for p in processes)
        ]
        return {pod.uid: pod for pod in [*coming, *idle][: max(0, count)]}


def _uids(pods: list[Pod]) -> set[str]:
    return {pod.uid for pod in pods}


class Fixed(Policy):
    """Every pool at its maximum from the first submission until all is done: what people do who give up on scaling."""

    title = "fixed"

    def begin(self, simulation: Simulation) -> None:
        """Create everything."""
        self._simulation = simulation
        for pool in simulation.trace.by_name:
            for _ in range(simulation.trace.most_pods(pool)):
                simulation.create(pool)
        simulation.wake = self._wake

    def _wake(self, _edge: bool) -> None:
        if self._simulation.scheduler.done:
            for pod in list(self._simulation.kubernetes.pods.values()):
                if pod.pool and not pod.deleting:
                    self._simulation.delete(pod)
