"""What holds on every trace, not only on those that somebody thought of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.scaling.policies import Gpudask
from benchmarks.scaling.kubernetes import EPOCH
from benchmarks.scaling.trace import GPU, PLAIN, Machines, Task, Trace
from benchmarks.scaling.simulation import Simulation
from gpudask.planning.actions import DeletePod, MarkRetiring, Plan
from gpudask.planning.observed.observation import Observation
from tests.scaling_simulator.drawn import machines, tasks, traces
from tests.scaling_simulator.small import pools

pytestmark = pytest.mark.simulation

several = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass
class Seen:
    """What the watch saw: sizes of a pool by time, and every rule that a pass broke."""

    sizes: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def watch(self, seen: Observation, planned: Plan) -> None:
        for pool in seen.cluster.spec.pools:
            size, autoscale = planned.pools[pool.name].size.pods, pool.autoscale
            assert autoscale is not None
            self.sizes.setdefault(pool.name, []).append((seen.now, size))
            if not autoscale.min <= size <= autoscale.max:
                self.broken.append(f"{pool.name}: {size} pods, not {autoscale.min} to {autoscale.max}")
            live = [pod for pod in seen.workers(pool.name) if pod.live and pod.retirement is None]
            if len(live) > autoscale.max:
                self.broken.append(f"{pool.name}: {len(live)} pods stay, at most {autoscale.max} may")
        for action in planned.actions:
            if isinstance(action, DeletePod) and action.pod.running and action.pod.retirement is None:
                self.broken.append(f"{action.pod.name} runs and was not drained")
            if isinstance(action, MarkRetiring | DeletePod):
                busy = [worker.name for worker in seen.registered(action.pod) if worker.own]
                undone = isinstance(action, MarkRetiring) and action.retirement is None
                if busy and not undone:
                    self.broken.append(f"{busy} are busy and were chosen")


def simulate(
    trace: Trace, until: Callable[[Simulation], bool], *, most_seconds: float = 20_000.0
) -> tuple[Simulation, Seen]:
    """Run until the condition holds."""
    simulation, seen = Simulation(trace), Seen()
    Gpudask(seen.watch).begin(simulation)
    while not until(simulation):
        assert simulation.clock.step(), f"nothing happens any more at {simulation.clock.now:.0f} s: {shown(simulation)}"
        assert simulation.clock.now < most_seconds, f"no end: {shown(simulation)}"
    return simulation, seen


def shown(simulation: Simulation) -> Any:
    return {name: pod.phase for name, pod in simulation.kubernetes.pods.items()}, len(simulation.scheduler.finished_at)


def is_at_rest(simulation: Simulation) -> bool:
    """Every task has ended, and every pool is at its minimum, running."""
    if not simulation.scheduler.done:
        return False
    for pool in simulation.trace.cluster.spec.pools:
        assert pool.autoscale is not None
        if len([pod for pod in simulation.kubernetes.pods.values() if pod.pool == pool.name]) != pool.autoscale.min:
            return False
    return True


@several
@given(traces())
def test_every_task_runs_once_within_the_limits_and_idle_pools_reach_their_minimum(trace: Trace):
    simulation, seen = simulate(trace, is_at_rest)
    assert not seen.broken
    assert simulation.scheduler.executions == len(trace.tasks), "a task was cut and ran again"


@several
@given(traces(), st.floats(60.0, 600.0))
def test_what_rests_stays_at_rest(trace: Trace, seconds: float):
    simulation, _ = simulate(trace, is_at_rest)
    before, end = simulation.actions, simulation.clock.now + seconds
    while simulation.clock.step() and simulation.clock.now < end:
        assert is_at_rest(simulation)
    assert simulation.actions == before


@several
@given(st.integers(1, 4), st.floats(5.0, 60.0), machines())
def test_constant_demand_does_not_make_the_pool_swing(width: int, seconds: float, of: Machines):
    """So many tasks at any time, each followed by the next: once durations are known the size changes no more."""
    starts = of.node_seconds * 1.1 + of.pull_seconds + 10.0
    length = 8 + int(4 * starts / seconds)
    chains = [
        Task(0, "link", seconds, GPU, (number - width,) if number >= width else ()) for number in range(width * length)
    ]
    trace = Trace("constant", chains, [0.0], pools(gpu=(0, 6), idle="5s"), of)
    simulation, seen = simulate(trace, lambda simulation: simulation.scheduler.done)
    begin, end = min(b for _, b, _ in simulation.scheduler.used), max(e for _, _, e in simulation.scheduler.used)
    # Until the pods that were ordered before the durations were known have come, and the idle ones have gone.
    settled = begin + 2 * starts + 2 * seconds + 10.0
    sizes = [size for at, size in seen.sizes["gpu"] if settled < at - 1_800_000_000.0 < end - 2 * seconds]
    assert len(set(sizes)) == 1, sizes


@several
@given(traces(), tasks(jobs=1), st.integers(0, 4))
def test_gpu_work_and_its_nodes_do_not_delay_cpu_work(trace: Trace, more: list[Task], nodes: int):
    """Independent GPU tasks beside CPU tasks, on nodes that take long: the CPU tasks end as they do alone."""
    plain = [replace(task, resources=PLAIN, needs=()) for task in trace.tasks if not task.resources]
    gpu = [replace(task, resources=GPU, needs=(), prefix="g") for task in more]
    slow = replace(trace.machines, node_seconds=100.0 * nodes)
    alone = replace(trace, tasks=plain)
    beside = replace(trace, tasks=[*plain, *gpu], machines=slow)
    if not plain:
        return
    alone_simulation, _ = simulate(alone, lambda simulation: simulation.scheduler.done)
    beside_simulation, _ = simulate(beside, is_at_rest)
    for number in range(len(plain)):
        late = beside_simulation.scheduler.finished_at[number] - alone_simulation.scheduler.finished_at[number]
        # Passes come a little sooner or later, which may be the moment in which a pod starts or an idle one goes.
        assert late <= 2.0 + 2 * trace.machines.start_seconds, f"task {number}: {late:.1f} s later"


@several
@given(st.floats(2.0, 20.0), st.integers(8, 40), st.integers(1, 12), machines(), st.integers(0, 5))
def test_look_ahead_orders_once_and_takes_nothing_back(seconds: float, parts: int, then: int, of: Machines, seed: int):
    """Two programs alike: in the second all durations are known, with estimates that are wrong by up to a quarter."""
    found: list[Task] = []
    for job in range(2):
        first = len(found)
        found += [Task(job, "part", seconds, PLAIN) for _ in range(parts)]
        found += [Task(job, "train", 10.0, GPU, tuple(range(first, first + parts))) for _ in range(then)]
    again = 400.0 + parts * seconds + then * 10.0 + 2 * (of.node_seconds + of.pull_seconds)
    trace = Trace("phases", found, [0.0, again], pools(cpu=(1, 2), gpu=(0, 2), idle="5s"), of, seed)
    simulation, seen = simulate(trace, is_at_rest)
    ready = max(end for number, _, end in simulation.scheduler.used if found[number] == Task(1, "part", seconds, PLAIN))
    sizes = [size for at, size in seen.sizes["gpu"] if again <= at - EPOCH < ready]
    assert sizes == sorted(sizes), sizes
    assert sizes[-1] == 1, "a pod is ordered before the first GPU task can run"
