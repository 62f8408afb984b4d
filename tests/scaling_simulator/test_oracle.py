"""The oracle is a lower bound: never above the best of all schedules of a small case, and near it where it can be."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.scaling.clock import Clock
from benchmarks.scaling.policies import Adaptive, Fixed, Gpudask
from benchmarks.scaling.kubernetes import Kubernetes
from benchmarks.scaling.oracle import ImpossibleError, Oracle, Work, least_held
from benchmarks.scaling.trace import Machines, Trace
from benchmarks.scaling.simulation import Policy, run
from tests.scaling_simulator import brute_force
from tests.scaling_simulator.brute_force import Piece
from tests.scaling_simulator.drawn import traces
from tests.scaling_simulator.small import cpu_task, task, trace

pytestmark = pytest.mark.simulation

START = 5  # seconds until the first GPU worker of START_SOON is there
START_SOON = Machines(start_seconds=5.0, end_seconds=1.0)
OVERHEAD = 6
examples = settings(max_examples=60, deadline=None)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[int], list[int], list[list[int]], int]:
    """Seconds, submissions and inputs of up to five tasks, and slots."""
    count = draw(st.integers(1, 5))
    seconds = [draw(st.integers(1, 6)) for _ in range(count)]
    submitted = [draw(st.integers(0, 8)) for _ in range(count)]
    needs = [draw(st.lists(st.integers(0, i - 1), unique=True, max_size=4)) if i else [] for i in range(count)]
    return seconds, submitted, needs, draw(st.integers(1, 3))


@examples
@given(graphs())
def test_no_schedule_is_shorter_than_the_least_makespan(case: tuple[list[int], list[int], list[list[int]], int]):
    seconds, submitted, needs, slots = case
    of = trace(
        *(task(s, job=i, needs=needs[i]) for i, s in enumerate(seconds)),
        submitted=submitted,
        machines=START_SOON,
        gpu=(0, slots),
    )
    best = brute_force.least_makespan(seconds, [max(START, at) for at in submitted], needs, slots)
    assert Oracle(of).makespan <= best + 1e-9


@pytest.mark.parametrize(
    ("tasks", "slots", "expected"),
    [
        ([task(3), task(4)], 2, START + 4),
        ([task(4), task(4), task(4), task(4)], 2, START + 8),
        ([task(5), task(5), task(5)], 2, START + 10),  # whole tasks: not 7.5 each
        ([cpu_task(20), task(7, needs=[0])], 1, START + 20 + 7),
        ([cpu_task(6), cpu_task(6), cpu_task(6), cpu_task(6), task(3, needs=[0, 1, 2, 3])], 1, START + 12 + 3),
        ([cpu_task(2), *(task(10, needs=[0]) for _ in range(6))], 3, START + 2 + 20),
    ],
    ids=["the longest", "all the work", "whole tasks", "a chain", "many before one", "many after one"],
)
def test_the_least_makespan_is_reached_where_nothing_is_in_the_way(tasks: list, slots: int, expected: float):
    assert Oracle(trace(*tasks, machines=START_SOON, gpu=(0, slots))).makespan == pytest.approx(expected)


@st.composite
def pieces(draw: st.DrawFn) -> list[Piece]:
    found = []
    for _ in range(draw(st.integers(1, 3))):
        seconds, earliest = draw(st.integers(1, 6)), draw(st.integers(START, 20))
        found.append(Piece(seconds, earliest, earliest + seconds + draw(st.integers(0, 8))))
    return found


@examples
@given(pieces(), st.integers(1, 2))
def test_no_schedule_holds_less_than_the_least(tried: list[Piece], pods: int):
    best = brute_force.least_held(tried, pods, OVERHEAD)
    if best is None:
        return
    of = trace(
        *(task(piece.seconds, job=i) for i, piece in enumerate(tried)),
        submitted=[piece.earliest for piece in tried],
        machines=START_SOON,
        gpu=(0, pods),
    )
    assert Oracle(of).least({i: piece.latest for i, piece in enumerate(tried)}).by_pods <= best + 1e-9


@pytest.mark.parametrize(
    ("tried", "pods"),
    [
        ([Piece(100, 5, 105)], 1),
        ([Piece(100, 5, 105), Piece(100, 5, 105)], 2),
        ([Piece(100, 5, 205), Piece(100, 5, 205)], 2),  # time enough for one after the other
        ([Piece(100, 5, 105), Piece(100, 108, 208)], 1),  # a pause shorter than a start: hold
        ([Piece(100, 5, 105), Piece(100, 200, 300)], 1),  # a long one: end and start again
    ],
    ids=["one", "two at once", "two in line", "a short pause", "a long pause"],
)
def test_the_least_held_is_nearly_what_the_best_schedule_holds(tried: list[Piece], pods: int):
    """But for two steps of a second at each start, which the bound gives away."""
    best = brute_force.least_held(tried, pods, OVERHEAD)
    assert best is not None
    of = trace(
        *(task(piece.seconds, job=i) for i, piece in enumerate(tried)),
        submitted=[piece.earliest for piece in tried],
        machines=START_SOON,
        gpu=(0, pods),
    )
    found = Oracle(of).least({i: piece.latest for i, piece in enumerate(tried)}).by_pods
    assert best - 2.0 * len(tried) <= found <= best


def test_the_first_pods_pull_their_image():
    tasks = [task(50), task(50)]
    without = Oracle(trace(*tasks, machines=START_SOON)).least({0: 200.0})
    slow = Machines(gpus_per_node=1, start_seconds=5.0, end_seconds=1.0, pull_seconds=30.0)
    assert Oracle(trace(*tasks, machines=slow)).least({0: 200.0}).by_pods == pytest.approx(without.by_pods + 30)
    hurried = Oracle(trace(*tasks, machines=slow)).least({0: 85.0}).by_pods
    assert hurried >= 100 + 2 * 30, "both at once need two nodes"


def test_a_node_counts_with_all_its_gpus():
    wide = Machines(gpus_per_node=8, start_seconds=5.0, end_seconds=1.0)
    least = Oracle(trace(task(100), machines=wide)).least({0: 105.0})
    assert 8 * 100 <= least.by_nodes <= 8 * 106
    assert 100 <= least.by_pods <= 106


def test_who_cannot_be_in_time_is_told_so():
    work = Work(1.0, due=np.array([0.0, 5.0]), possible=np.array([5.0, 5.0]))
    with pytest.raises(ImpossibleError):
        least_held(work, [0.0, 1.0], overhead_seconds=4.0)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(traces(least_gpus=False), st.sampled_from([Gpudask, Adaptive, Fixed]))
def test_no_run_of_the_simulator_is_below_the_bounds(of: Trace, policy: type[Policy]):
    outcome, oracle = run(of, policy()), Oracle(of)
    least = oracle.least(outcome.jobs)
    assert outcome.makespan >= oracle.makespan - 1e-6
    assert all(end >= oracle.job_end(job) - 1e-6 for job, end in outcome.jobs.items())
    assert outcome.gpu_seconds >= least.by_pods - 1e-6
    assert outcome.node_gpu_seconds >= least.by_nodes - 1e-6


def test_a_node_pulls_its_image_only_while_a_pod_is_there():
    """Else a node that came for a cancelled pod would have the image for nothing, which the oracle pays for."""
    clock = Clock()
    machines = Machines(node_seconds=0.0, pull_seconds=30.0, start_seconds=4.0)
    started: list[float] = []
    nodes = Kubernetes(
        clock,
        machines,
        0,
        started=lambda _: started.append(clock.now),
        ended=lambda _: None,
        changed=lambda: None,
    )
    make = partial(nodes.create, pool="gpu", gpus=1, spec_hash="")
    make("a", dask_name="a")
    clock.after(10.0, lambda: nodes.delete(nodes.pods["a"]))
    clock.after(100.0, lambda: make("b", dask_name="b"))
    while not started:
        assert clock.step()
    assert 100 + 20 + 4 <= started[0] <= 100 + 20 + 5
