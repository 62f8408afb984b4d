"""How long a pool's first demand waits for a pod, a worker and a result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpudask.planning.first_demand import FirstDemand, Progress, Step, advance
from gpudask.planning.observed.observation import Observation
from gpudask.planning.observed.pods import Pod
from gpudask.scaling.assignment import Share
from tests.planning.builders import NOW, busy, cluster, demand, gpu_pool, pod, scheduler_pod, seen, worker

OF = cluster(gpu_pool())
WAITING, NOTHING = Share(unrunnable=3), Share()
SINCE = FirstDemand(NOW)


def look(*pods: Pod, after: float, workers: tuple[Any, ...] = (), **fields: Any) -> Observation:
    """What a pass sees so many seconds after the first demand came."""
    return seen(OF, scheduler_pod(OF), *pods, says=demand(workers=workers), now=NOW + after, **fields)


def test_it_begins_where_tasks_want_a_pool_without_pods():
    assert advance(look(after=0), "gpu", WAITING, None) == Progress(SINCE)


def test_a_pool_that_has_a_pod_or_that_nobody_wants_has_no_first_demand():
    assert advance(look(pod(OF, "gpu"), after=0), "gpu", WAITING, None) == Progress()
    assert advance(look(after=0), "gpu", NOTHING, None) == Progress()


def test_each_step_is_measured_once_and_the_result_ends_it():
    first = pod(OF, "gpu", running=False)
    steps: list[tuple[Step, float]] = []
    waiting: FirstDemand | None = SINCE
    running = pod(OF, "gpu")
    joined = {running.dask_name: NOW + 20}
    for observation in (
        look(first, after=1),
        look(first, after=5),
        look(running, after=22, workers=(busy(running),), first_joined=joined),
        look(running, after=25, workers=(busy(running),), first_joined=joined),
        look(running, after=30, workers=(worker(running, tasks_done=1),), first_joined=joined),
    ):
        progress = advance(observation, "gpu", WAITING, waiting)
        waiting, steps = progress.waiting, steps + list(progress.steps)
    assert steps == [(Step.POD, 1.0), (Step.WORKER, 20.0), (Step.RESULT, 30.0)]
    assert waiting is None


def test_demand_that_goes_before_there_is_a_pod_is_no_measure():
    assert advance(look(after=5), "gpu", NOTHING, SINCE) == Progress()


def test_a_scheduler_that_is_silent_takes_no_demand_back():
    silent = replace(look(after=5), demand=None)
    assert advance(silent, "gpu", NOTHING, SINCE) == Progress(SINCE)
    assert advance(silent, "gpu", WAITING, None) == Progress()


def test_pods_that_go_before_the_result_end_it_without_a_measure():
    had_a_pod = FirstDemand(NOW, (Step.POD,))
    assert advance(look(after=5), "gpu", WAITING, had_a_pod) == Progress()
