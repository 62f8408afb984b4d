"""Pods that are replaced although they work: a sick device at once, a worn worker in turn."""

from __future__ import annotations

import pytest

from gpudask.api.reasons import Reason
from gpudask.api.status import Status
from gpudask.planning.actions import MarkRetiring
from gpudask.planning.events import events
from gpudask.planning.observed.pods import Retirement
from gpudask.planning.plan import plan
from gpudask.planning.status import report
from tests.builders import a_pool
from tests.planning.builders import NOW, cluster, demand, gpu_pool, pod, scheduler_pod, seen, tasks, worker
from tests.planning.sequence import CPU, Sequence, holds, sets, submits, tell
from tests.planning.world import World


def sickens(name: str):
    return lambda world: world.sicken(name)


SEQUENCES = {
    "a sick pod leaves at once, and another one comes": Sequence(
        [CPU, a_pool("gpu", gpu={}, replicas=2)],
        [
            (submits(2, 100, GPU=1), 5, {"gpu": "0W 1W"}),
            (sickens("gpu-0"), 1, {"gpu": "1W"}),
            (None, 1, {"gpu": "0P 1W"}),
            (None, 4, {"gpu": "0I 1W"}),
        ],
    ),
    "what it still runs, it ends; nothing more is given to it": Sequence(
        [CPU, a_pool("gpu", gpu={}, nthreads=2, offers={"GPU": 2}, replicas=1)],
        [
            (submits(1, 30, GPU=1), 5, {"gpu": "0W"}),
            (lambda world: world.sick.update({next(iter(world.workers()))[2]: "3 tasks"} | _all_gpu(world)), 1, {}),
            (None, 10, {"gpu": "0D 1I"}),
            (submits(1, 5, GPU=1), 1, {"gpu": "0D 1W"}),
            (None, 30, {"gpu": "1I"}),
        ],
    ),
    "with a pool that shrinks meanwhile it is not called back": Sequence(
        [CPU, gpu_pool(most=2)],
        [
            (submits(2, 100, known=True, GPU=1), 5, {"gpu": "0W 1W"}),
            (holds("gpu-0", "actor"), 0, {}),
            (sickens("gpu-0"), 1, {"gpu": "0D 1W"}),  # one task is left, and has its pod
            (submits(3, 100, known=True, GPU=1), 1, {"gpu": "0D 1W 2P"}),
            (holds("gpu-0"), 4, {"gpu": "1W 2W"}),
        ],
    ),
    "data that its device holds is lost already, and keeps nothing": Sequence(
        [CPU, a_pool("gpu", gpu={}, replicas=1)],
        [
            (None, 5, {"gpu": "0I"}),
            (holds("gpu-0", "data"), 1, {}),
            (sickens("gpu-0"), 1, {"gpu": ""}),
            (None, 1, {"gpu": "0P"}),
        ],
    ),
    "where nobody can drain it stays": Sequence(
        [CPU, a_pool("gpu", gpu={}, replicas=1)],
        [
            (sets(features={"demand": "", "retire": "off"}), 5, {"gpu": "0I"}),
            (sickens("gpu-0"), 60, {"gpu": "0I"}),
        ],
    ),
    "worn pods are replaced in turn, new ones first, though their tasks are not cut": Sequence(
        [a_pool(replicas=2, nthreads=1, recycle={"afterTasks": 3})],
        [
            (submits(6, 2), 4, {"cpu": "0W 1W"}),
            (None, 5, {"cpu": "0I 1I 2P"}),
            (submits(1, 100), 1, {}),
            (None, 200, {"cpu": "2I 3I"}),
        ],
    ),
    "an autoscaled pool keeps its size while it recycles": Sequence(
        [CPU, gpu_pool(most=2, idle="1000s", recycle={"afterTasks": 2})],
        [
            (submits(5, 3, known=True, GPU=1), 5, {"gpu": "0W"}),
            (None, 30, {"gpu": "1I"}),
            (None, 100, {"gpu": "1I"}),
        ],
    ),
    "one at rest replaces nothing: its pods leave for good": Sequence(
        [CPU, gpu_pool(most=2, idle="60s", recycle={"afterTasks": 4})],
        [
            (submits(4, 3, known=True, GPU=1), 20, {"gpu": "0I"}),
            (None, 30, {"gpu": "0I"}),
            (None, 60, {"gpu": ""}),
        ],
    ),
    "without a node for the new one the old one makes room": Sequence(
        [CPU, gpu_pool(most=1, idle="1000s", recycle={"afterTasks": 2})],
        [
            (submits(5, 3, known=True, GPU=1), 5, {"gpu": "0W"}),
            (None, 100, {"gpu": "1I"}),
        ],
        nodes={"gpu": 1},
    ),
    "a pool that is not to be recycled is not": Sequence(
        [a_pool(replicas=1, nthreads=1)], [(submits(50, 1), 60, {"cpu": "0I"})]
    ),
}


def _all_gpu(world: World) -> dict[str, str]:
    return {name: "3 tasks in a row failed" for pod, _, name in world.workers() if pod.pool == "gpu"}


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence(name: str) -> None:
    world = tell(SEQUENCES[name])
    assert not world.cut


def test_each_sick_pod_makes_the_next_one_wait_longer() -> None:
    world = World(cluster(CPU, a_pool("gpu", gpu={}, replicas=1)))
    world.run(5)
    waits = []
    for number in range(4):
        world.sicken(f"gpu-{_only(world)}")
        began = world.now
        world.step()
        while not any(pod.pool == "gpu" and pod.live and pod.retirement is None for pod in world.pods.values()):
            world.step()
            assert world.now - began < 60, number
        waits.append(world.now - began)
        world.run(5)
    assert waits == [2, 3, 5, 9]


def _only(world: World) -> int:
    return next(int(p.name.rpartition("-")[2]) for p in world.pods.values() if p.pool == "gpu" and p.live)


OF = cluster(CPU, a_pool("gpu", gpu={"count": 2}, replicas=1))
GPU = pod(OF, "gpu")
SICK = demand(tasks(1, GPU=1), workers=(worker(GPU, 0, sick="3 tasks in a row failed: cudaErrorECC"), worker(GPU, 1)))


@pytest.mark.parametrize(
    ("retiring", "others", "released"),
    [("blocked", True, True), ("", True, False), ("blocked", False, False), ("draining", True, False)],
)
def test_results_of_a_sick_pod_are_let_go_only_after_others_could_have_taken_them(
    retiring: str, others: bool, released: bool
) -> None:
    leaves = pod(OF, "gpu", retirement=Retirement("its device is sick: x", final=True, at=NOW))
    stuck = worker(leaves, 0, sick="3 tasks in a row failed: x", retiring=retiring, blockers=("data",))
    cpu = pod(OF, "cpu")
    says = demand(workers=(stuck, worker(leaves, 1), *((worker(cpu),) if others else ())))
    actions = plan(seen(OF, scheduler_pod(OF), cpu, leaves, says=says)).actions
    marks = [a for a in actions if isinstance(a, MarkRetiring) and a.retirement is not None and a.retirement.release]
    assert bool(marks) is released


def test_one_sick_worker_takes_its_whole_pod_and_the_mark_is_not_made_twice() -> None:
    (mark,) = [a for a in plan(seen(OF, scheduler_pod(OF), GPU, says=SICK)).actions if isinstance(a, MarkRetiring)]
    assert (mark.pod, mark.failed) == (GPU, True)
    assert mark.retirement == Retirement("its device is sick: 3 tasks in a row failed: cudaErrorECC", final=True)
    marked = pod(OF, "gpu", retirement=mark.retirement)
    assert mark.retirement.at == NOW
    again = plan(seen(OF, scheduler_pod(OF), marked, pod(OF, "gpu", 1), says=SICK)).actions
    assert not [a for a in again if isinstance(a, MarkRetiring) and a.failed]


def test_tasks_that_look_for_a_gpu_on_a_pool_without_any_make_no_pod_sick() -> None:
    of = cluster(CPU)
    cpu = pod(of, "cpu")
    says = demand(workers=(worker(cpu, sick="3 tasks in a row failed: cudaErrorNoDevice"),))
    observation = seen(of, scheduler_pod(of), cpu, says=says)
    assert plan(observation).actions == ()
    assert (
        next(c.status for c in report(observation, plan(observation), Status()).conditions if c.type == "Degraded")
        == "False"
    )


def test_a_pod_that_leaves_as_idle_and_is_sick_is_not_called_back_either() -> None:
    leaves = pod(OF, "gpu", retirement=Retirement("idle", if_idle=True, at=NOW - 5))
    actions = plan(seen(OF, scheduler_pod(OF), leaves, says=SICK)).actions
    marks = [a for a in actions if isinstance(a, MarkRetiring)]
    assert [mark.retirement.final for mark in marks if mark.retirement] == [True]


def test_the_status_and_an_event_say_so() -> None:
    calm = seen(OF, scheduler_pod(OF), GPU, says=demand(workers=(worker(GPU, 0), worker(GPU, 1))))
    before = report(calm, plan(calm), Status())
    observation = seen(OF, scheduler_pod(OF), GPU, says=SICK)
    after = report(observation, plan(observation), before)
    degraded = next(c for c in after.conditions if c.type == "Degraded")
    assert degraded.reason == Reason.DEVICE_SICK
    assert degraded.message == "pool gpu: demo-gpu-worker-0: 3 tasks in a row failed: cudaErrorECC"
    said = [a.message for a in events(before, after) if a.reason == Reason.POD_REPLACED]
    assert said == ["pool gpu: demo-gpu-worker-0-abcde: its device is sick: 3 tasks in a row failed: cudaErrorECC"]
