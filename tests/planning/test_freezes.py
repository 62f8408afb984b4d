"""Freezes: nobody says what is wanted, so sizes stay; it is told, ends by itself, and GPUs may be given up."""

from __future__ import annotations

from typing import Any

import pytest

from gpudask.api.reasons import Reason
from gpudask.api.status import Status
from gpudask.planning.events import events
from gpudask.planning.plan import plan
from gpudask.planning.status import report
from tests.builders import a_pool
from tests.planning.builders import NOW, cluster, gpu_pool, scaled
from tests.planning.sequence import CPU, Sequence, edits, override, restarts, sets, submits, tell
from tests.planning.world import World

GIVES_UP = {"idle": {"frozenFor": "5m"}}
SILENT, HEARD = sets(silent=True), sets(silent=False)
NO_DEMAND = {"demand": "Scheduler.add_plugin is missing", "fence": "", "retire": "without demand nobody knows"}
NO_RETIRE = {"demand": "", "fence": "", "retire": "Scheduler.broadcast is missing"}


def exits(*names: str, code: int = 0) -> Any:
    return lambda world: [world.exit(name, code) for name in names]


def come_back(*names: str) -> Any:
    return lambda world: [world.come_back(name) for name in names]


def loses_its_scheduler(world: World) -> None:
    """The scheduler process ends, and with it all that it knows."""
    world.cancel()
    world.change_scheduler(started=0.0, ready=False, phase="Pending", created=world.now, node="")


SEQUENCES = {
    "a silent scheduler freezes the pools, and they follow it again by themselves": Sequence(
        [scaled(least=1), gpu_pool(most=8)],
        [
            (submits(2, 60, known=True, GPU=1), 5, {"gpu": "0W 1W"}),
            (SILENT, 600, {"cpu": "0I", "gpu": "0I 1I"}),
            (submits(100, 10, known=True, GPU=1), 60, {"gpu": "0W 1W"}),
            (HEARD, 4, {"gpu": " ".join(f"{n}W" for n in range(8))}),
        ],
    ),
    "a scheduler that restarts freezes them until its workers are back": Sequence(
        [CPU, gpu_pool(most=2, idle="30s")],
        [
            (submits(2, 100, known=True, GPU=1), 5, {"gpu": "0W 1W"}),
            (loses_its_scheduler, 0, {}),
            (exits("gpu-0", "gpu-1"), 1, {"gpu": "0P 1P"}),
            (None, 9, {"gpu": "0P 1P", "scheduler": "R"}),  # their containers come back with a delay
            (come_back("gpu-0", "gpu-1"), 1, {"gpu": "0I 1I"}),
            (None, 20, {"gpu": "0I 1I"}),
            (None, 15, {"gpu": ""}),  # no demand: the idle timeout counts from there
        ],
    ),
    "pods whose container does not come back leave as idle ones do": Sequence(
        [CPU, gpu_pool(most=2)],
        [
            (submits(2, 100, known=True, GPU=1), 5, {"gpu": "0W 1W"}),
            (loses_its_scheduler, 0, {}),
            (exits("gpu-0", "gpu-1"), 25, {"gpu": "0P 1P"}),
            (None, 15, {"gpu": ""}),
        ],
    ),
    "a pod that crashes is none that lost its scheduler: without demand it goes soon": Sequence(
        [CPU, gpu_pool(most=2)],
        [
            (submits(1, 100, known=True, GPU=1), 5, {"gpu": "0W"}),
            (lambda world: world.cancel(), 0, {}),
            (exits("gpu-0", code=1), 14, {"gpu": "0P"}),
            (None, 3, {"gpu": ""}),
        ],
    ),
    "GPUs of a frozen pool are given up once that is long enough, CPUs are not": Sequence(
        [scaled(least=1), gpu_pool(most=4)],
        [
            (submits(2, 600, known=True, GPU=1), 5, {"gpu": "0W 1W"}),
            (SILENT, 298, {"gpu": "0W 1W"}),
            (None, 5, {"cpu": "0I", "gpu": ""}),
            (None, 300, {"gpu": ""}),
            (HEARD, 5, {"gpu": "0W 1W"}),
        ],
        GIVES_UP,
    ),
    "its minimum stays": Sequence(
        [CPU, scaled("gpu", least=1, most=4, gpu={})],
        [
            (submits(2, 600, known=True, GPU=1), 5, {"gpu": "0W 1W"}),
            (SILENT, 305, {"gpu": "0W"}),
            (None, 300, {"gpu": "0W"}),
        ],
        GIVES_UP,
    ),
    "silence that ends in between starts the time anew": Sequence(
        [CPU, gpu_pool(most=4)],
        [
            (submits(1, 6000, known=True, GPU=1), 5, {"gpu": "0W"}),
            *[row for _ in range(3) for row in ((SILENT, 200, {"gpu": "0W"}), (HEARD, 1, {"gpu": "0W"}))],
        ],
        GIVES_UP,
    ),
    "so does an operator that restarts": Sequence(
        [CPU, gpu_pool(most=4)],
        [
            (submits(1, 6000, known=True, GPU=1), 5, {"gpu": "0W"}),
            (SILENT, 200, {"gpu": "0W"}),
            (restarts, 298, {"gpu": "0W"}),
            (None, 6, {"gpu": ""}),
        ],
        GIVES_UP,
    ),
    "without the setting nothing is given up": Sequence(
        [CPU, gpu_pool(most=4)],
        [(submits(1, 9000, known=True, GPU=1), 5, {"gpu": "0W"}), (SILENT, 7200, {"gpu": "0W"})],
    ),
    "a preload that cannot count freezes them too": Sequence(
        [CPU, gpu_pool(most=4)],
        [
            (submits(1, 9000, known=True, GPU=1), 5, {"gpu": "0W"}),
            (sets(features=NO_DEMAND), 298, {"gpu": "0W"}),
            (None, 6, {"gpu": ""}),
        ],
        GIVES_UP,
    ),
    "one that cannot drain keeps pods from leaving, and the busy ones stay when they are given up": Sequence(
        [CPU, gpu_pool(most=4)],
        [
            (submits(1, 9000, known=True, GPU=1), 5, {"gpu": "0W"}),
            (sets(features=NO_RETIRE), 1, {}),
            (submits(1, 20, known=True, GPU=1), 5, {"gpu": "0W 1W"}),
            (None, 300, {"gpu": "0W 1I"}),
            (None, 60, {"gpu": "0W"}),
        ],
        GIVES_UP,
    ),
    "a person's smaller size waits for a silent scheduler, and is given to it in the end": Sequence(
        [CPU, gpu_pool(most=4)],
        [
            (submits(2, 9000, known=True, GPU=1), 5, {"gpu": "0W 1W"}),
            (SILENT, 1, {}),
            (edits(CPU, gpu_pool(most=4), **override(1), **GIVES_UP), 290, {"gpu": "0W 1W"}),
            (None, 20, {"gpu": "0W"}),
        ],
    ),
    "a suspended cluster whose scheduler is silent keeps its pods until they are given up": Sequence(
        [CPU, gpu_pool(most=4)],
        [
            (submits(1, 9000, known=True, GPU=1), 5, {"gpu": "0W"}),
            (SILENT, 1, {}),
            (edits(CPU, gpu_pool(most=4), suspend=True, **GIVES_UP), 290, {"cpu": "0I", "gpu": "0W"}),
            (None, 20, {"cpu": "0I", "gpu": ""}),
        ],
    ),
    "one that cannot drain suspends once its tasks end": Sequence(
        [CPU, gpu_pool(most=4)],
        [
            (submits(1, 60, known=True, GPU=1), 5, {"gpu": "0W"}),
            (sets(features=NO_RETIRE), 1, {}),
            (edits(CPU, gpu_pool(most=4), suspend=True), 30, {"cpu": "", "gpu": "0D"}),
            (None, 40, {"gpu": "", "scheduler": ""}),
        ],
    ),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence(name: str) -> None:
    tell(SEQUENCES[name])


def _told(world: World, status: Status) -> Status:
    seen = world.observe()
    return report(seen, world.plan, status)


def test_the_status_says_why_and_since_when_and_that_it_is_over() -> None:
    world = World(cluster(CPU, gpu_pool(), **GIVES_UP))
    world.submit(1, 9000, known=True, GPU=1)
    world.run(6)
    calm = _told(world, Status())
    world.silent = True
    world.run(10)
    moment = _told(world, calm)
    assert moment.pools[1].frozen_since == "", "a scheduler that restarts is silent for some seconds"
    world.run(15)
    frozen = _told(world, moment)
    assert frozen.pools[1].frozen_since == "2027-01-15T08:00:06.000Z"
    degraded = next(c for c in frozen.conditions if c.type == "Degraded")
    assert (degraded.status, degraded.reason) == ("True", Reason.FROZEN)
    assert degraded.message == (
        "pool gpu holds 1 GPUs and is frozen since 2027-01-15T08:00:06.000Z: the scheduler has not been heard yet"
    )
    assert frozen.pools[0].frozen_since == "", "a fixed size needs no demand"
    world.run(274)
    seen = world.observe()
    gone = report(seen, plan(seen), frozen)
    assert gone.pools[1].forced == "", "not yet"
    world.run(1)
    seen = world.observe()
    gone = report(seen, plan(seen), frozen)
    assert gone.pools[1].forced.startswith("demo-gpu-worker-0-")
    assert gone.pools[1].forced.endswith("idle.frozenFor is over: the scheduler has not been heard yet")
    assert [a.reason for a in events(frozen, gone) if a.reason == Reason.DRAIN_FORCED] == [Reason.DRAIN_FORCED]
    world.silent = False
    world.run(6)
    over = _told(world, gone)
    assert over.pools[1].frozen_since == ""
    assert next(c.status for c in over.conditions if c.type == "Degraded") == "False"


def test_a_cluster_that_starts_is_not_degraded_while_its_scheduler_pulls_an_image() -> None:
    world = World(cluster(CPU, scaled("gpu", least=1, gpu={})))
    world.step()
    world.change_scheduler(created=NOW + 1000)
    world.run(100)
    status = _told(world, Status())
    assert next(c.status for c in status.conditions if c.type == "Degraded") == "False"
    world.run(60)
    status = _told(world, status)
    assert next(c.reason for c in status.conditions if c.type == "Degraded") == Reason.FROZEN


def test_a_pool_without_gpus_is_frozen_but_not_degraded() -> None:
    world = World(cluster(scaled(least=1), a_pool("gpu", gpu={}, replicas=1)))
    world.run(6)
    world.silent = True
    world.run(60)
    status = _told(world, Status())
    assert [bool(pool.frozen_since) for pool in status.pools] == [True, False]
    assert next(c.status for c in status.conditions if c.type == "Degraded") == "False"


def test_the_pass_comes_back_when_the_time_to_give_up_has_come() -> None:
    world = World(cluster(CPU, gpu_pool(), **GIVES_UP))
    world.submit(1, 9000, known=True, GPU=1)
    world.run(6)
    world.silent = True
    world.run(100)
    world.reconcile()
    left = world.plan.pools["gpu"].requeue_after
    assert left is not None
    assert 0 < left <= 201
