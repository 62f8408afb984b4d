"""Our policy: the operator's own planning, pass by pass. Nothing of it is written anew here.

As in the operator's loop, a pass is made soon after each edge and pod change, for plain counts once a second (as the
preload says them), and when the plan asks for one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.scaling.kubernetes import EPOCH
from benchmarks.scaling.world import Contestant, World
from gpudask.planning.actions import (
    Action,
    CreateScheduler,
    CreateWorker,
    DeletePod,
    MarkProtected,
    MarkRetiring,
    Plan,
    TakeOffService,
)
from gpudask.planning.observed.observation import Observation
from gpudask.planning.plan import plan
from gpudask.planning.start_times import StartTimes
from gpudask.reconcile.memory import Memory

_EDGE_SECONDS, _COUNTS_SECONDS = 0.05, 1.0
_SOONEST_SECONDS = 0.01

Watch = Callable[[Observation, Plan], None]


class Gpudask(Contestant):
    """`watch` sees every pass: for the tests."""

    title = "gpudask"

    def __init__(self, watch: Watch | None = None) -> None:
        self._watch = watch
        self._memory = Memory()
        self._refused: frozenset[str] = frozenset()
        self._told: dict[str, bool] = {}
        self._due = float("inf")

    def begin(self, world: World) -> None:
        """Make the first pass now."""
        self._world = world
        world.wake = self._wake
        self._pass_in(0.0)

    def _wake(self, edge: bool) -> None:
        self._pass_in(_EDGE_SECONDS if edge else _COUNTS_SECONDS)

    def _pass_in(self, seconds: float) -> None:
        due = self._world.clock.now + seconds
        if due < self._due:
            self._due = due
            self._world.clock.after(seconds, partial(self._on_due, due))

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
            self._memory.started(name, StartTimes.of(seen, name).seen, empty=not seen.workers(name))
            if not pool.size.is_guess:
                self._memory.sized(name, pool.size.pods)
        for action in planned.actions:
            self._carry_out(action)
        self._tell()
        if planned.requeue_after is not None:
            self._pass_in(max(_SOONEST_SECONDS, planned.requeue_after))

    def _observe(self) -> Observation:
        world = self._world
        joined = {name: EPOCH + process.joined for name, process in world.scheduler.by_name.items()}
        return Observation(
            world.trace.cluster,
            tuple(sorted(world.kubernetes.pods.values(), key=lambda pod: pod.name)),
            world.kubernetes.now,
            demand=world.scheduler.listen(),
            demand_at=world.kubernetes.now,
            scheduler_since=EPOCH - 50.0,
            joined=joined,
            first_joined=joined,
            refused=self._refused,
            memory=dict(self._memory.pools),
        )

    def _carry_out(self, action: Action) -> None:
        match action:
            case CreateWorker(pool, number):
                self._world.create(pool, number)
            case DeletePod(pod, _, only_if_unchanged):
                self._world.delete(pod, only_if_unchanged=only_if_unchanged)
            case MarkRetiring(pod, retirement):
                self._world.count_action(pod)
                self._world.kubernetes.annotate(pod.name, retirement)
            case CreateScheduler() | MarkProtected() | TakeOffService():
                raise AssertionError("the scheduler is there, and marks come apart")

    def _tell(self) -> None:
        """Tell the scheduler who retires, if that changed."""
        retiring = {
            pod.dask_name: pod.retirement.if_idle and not pod.deleting
            for pod in self._world.kubernetes.pods.values()
            if pod.pool and pod.retirement is not None
        }
        if retiring != self._told:
            self._told = retiring
            self._refused = self._world.scheduler.retire(retiring)
