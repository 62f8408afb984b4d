"""Each demand goes to the cheapest pool that serves it; what none serves is named."""

from __future__ import annotations

import pytest

from gpudask.api.pool import Autoscale
from gpudask.scaling.assignment import Share, assign, unserved_message, slots_per_pod
from gpudask.scaling.demand import Requirement
from gpudask.scaling.sizing import Pods, wanted
from tests.builders import a_pool, parsed_spec
from tests.planning.builders import tasks

CPU = a_pool("cpu", resources={"cpu": 4})
GPU = a_pool("gpu", gpu={})
FOUR = a_pool("four", gpu={"count": 4})
WHOLE = a_pool("whole", gpu={"count": 2, "launcher": "dask"}, nthreads=4)
HIMEM = a_pool("himem", offers={"MEMORY": "200G"}, nthreads=8)


@pytest.mark.parametrize(
    ("pool", "requirement", "slots"),
    [
        (CPU, tasks(1), 4),
        (CPU, tasks(1, GPU=1), 0),
        (GPU, tasks(1, GPU=1), 1),
        (GPU, tasks(1, GPU=0.25), 1),  # one thread a GPU
        (a_pool("gpu", gpu={}, nthreads=4), tasks(1, GPU=0.25), 4),
        (FOUR, tasks(1, GPU=1), 4),
        (FOUR, tasks(1, GPU=2), 0),  # each process offers one
        (WHOLE, tasks(1, GPU=2), 1),
        (WHOLE, tasks(1, GPU=1), 2),
        (HIMEM, tasks(1, MEMORY=60e9), 3),
        (HIMEM, tasks(1, MEMORY=60e9, GPU=1), 0),
        (HIMEM, tasks(1, GPU=0), 0),  # a worker that does not know the name closes when it gets such a task
        (GPU, tasks(1, GPU=0), 1),
        (HIMEM, tasks(1, MEMORY=5e-324), 8),  # as good as nothing
        (a_pool("x", gpu={}, accepts="annotated"), tasks(1), 0),
    ],
)
def test_slots_of_a_pod(pool: dict, requirement: Requirement, slots: int):
    spec = parsed_spec(pool)
    assert slots_per_pod(spec, spec.pools[0], requirement) == slots


def test_the_cheapest_pool_serves():
    spec = parsed_spec(FOUR, GPU, CPU)
    shares = assign(spec, (tasks(3, GPU=1), tasks(8))).shares
    assert {name: share.pods for name, share in shares.items()} == {"four": 0, "gpu": 3.0, "cpu": 2.0}


def test_shares_of_several_demands_add_up():
    spec = parsed_spec(WHOLE, CPU)
    share = assign(spec, (tasks(2, GPU=1), tasks(1, running=1, seconds=60, GPU=2))).shares["whole"]
    assert (share.unrunnable, share.processing, share.pods, share.pods_unknown, share.pod_seconds) == (3, 1, 3, 1, 60)


def test_who_asks_for_nothing_of_a_resource_wants_a_pod_of_a_pool_that_offers_it():
    spec = parsed_spec(CPU, GPU)
    shares = assign(spec, (tasks(5, GPU=0),)).shares
    assert (shares["cpu"], shares["gpu"].unrunnable) == (Share(), 5)
    assert wanted(spec.pools[1].autoscale or Autoscale(min=0, max=8), shares["gpu"], Pods())[0] == 1


def test_who_holds_nothing_asks_for_no_pod_beside_those_of_tasks_that_do():
    spec = parsed_spec(CPU, GPU)
    share = assign(spec, (tasks(0, running=1, GPU=0), tasks(2, GPU=1))).shares["gpu"]
    assert (share.unrunnable, share.processing, share.pods, share.pods_unknown) == (2, 1, 2, 2)


def test_waiting_tasks_alone_size_nothing():
    assert assign(parsed_spec(CPU), (tasks(0),)).shares["cpu"].pods == 0


def test_what_nobody_serves_is_named_with_what_they_offer():
    spec = parsed_spec(CPU, FOUR)
    unserved = assign(spec, (tasks(3, GPU=2),)).unserved
    assert [unserved_message(spec, item) for item in unserved] == [
        (
            "3 tasks want GPU: 2; pool cpu offers no resources a worker, pool four offers GPU: 1 a worker: write"
            " `GPU: 1`, or a pool whose workers offer 2 GPU: gpu: {count: 2, launcher: dask}"
        )
    ]


@pytest.mark.parametrize(
    ("asked", "cure"),
    [
        ({"gpu": 1}, "gpu: did you mean `GPU`?"),
        ({"MEMROY": 1}, "MEMROY: did you mean `MEMORY`?"),
        ({"TPU_V5_PODS": 2}, "no pool offers TPU_V5_PODS: write offers: {TPU_V5_PODS: 2} in a pool, or leave it out"),
        ({"GPU": 3}, "write `GPU: 2`, or a pool whose workers offer 3 GPU: gpu: {count: 3, launcher: dask}"),
        (
            {"GPU": 1, "MEMORY": 1e9},
            "write one of them with each task, or a pool whose workers offer all of GPU, MEMORY",
        ),
        ({"MEMORY": 3e11}, "write `MEMORY: 2e+11`, or a pool whose workers offer 3e+11 MEMORY"),
    ],
)
def test_what_nobody_serves_is_told_with_what_to_write(asked: dict[str, float], cure: str):
    spec = parsed_spec(CPU, GPU, WHOLE, HIMEM)
    (unserved,) = assign(spec, (tasks(1, **asked),)).unserved
    assert unserved_message(spec, unserved).endswith(f" a worker: {cure}")


def test_names_that_a_task_makes_up_cost_and_say_little():
    spec = parsed_spec(*(a_pool(f"p{i}", offers={f"{'X' * 50}{i}{j}": 1 for j in range(16)}) for i in range(20)))
    asked = Requirement(tuple((f"{'Y' * 180}{number}", 1.0) for number in range(32)), unrunnable=1)
    message = unserved_message(spec, asked)
    cure = message.rpartition(" a worker: ")[2]
    assert len(cure) < 600
    assert cure.count("no pool offers") == 3


def test_plain_tasks_that_no_pool_takes_are_named():
    spec = parsed_spec(a_pool("gpu", gpu={}, accepts="annotated"))
    assert unserved_message(spec, assign(spec, (tasks(1),)).unserved[0]) == (
        "1 task without resource annotations: every pool accepts annotated tasks only: write resources={'GPU': 1} with"
        " them, or accepts: any in a pool"
    )


def test_a_pool_at_zero_for_good_serves_nobody():
    spec = parsed_spec(a_pool("cpu", replicas=0))
    (unserved,) = assign(spec, (tasks(2),)).unserved
    assert unserved_message(spec, unserved) == (
        "2 tasks without resource annotations: pool cpu set to 0 pods: give cpu a size: gpudask scale CLUSTER cpu=auto,"
        " or unscale('cpu')"
    )
