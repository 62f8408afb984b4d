"""How long a pool's pods take to start, as far as it was seen."""

from __future__ import annotations

import pytest

from gpudask.planning.observed.observation import PoolMemory
from gpudask.planning.observed.parser import parse_pod
from gpudask.planning.pool_view import StartTimes
from tests.planning.builders import NOW, cluster, demand, gpu_pool, pod, seen, worker

OF = cluster(gpu_pool(count=2))
FIRST = pod(OF, "gpu", 0, created=NOW - 500, placed=NOW - 390)
LAST = pod(OF, "gpu", 1, created=NOW - 100, placed=NOW - 99)
WORKERS = tuple(worker(one, index) for one in (FIRST, LAST) for index in (0, 1))
MEMORY = {"gpu": PoolMemory(start_seconds=33.0, held_seconds=22.0)}


def joined(*seconds_ago: float) -> dict[str, float]:
    return {one.name: NOW - ago for one, ago in zip(WORKERS, seconds_ago, strict=False)}


@pytest.mark.parametrize(
    ("pods", "ago", "since", "expected"),
    [
        ((FIRST, LAST), (450, 440, 60, 50), 1000, 50.0),  # the last pod, with all of its workers
        ((FIRST, LAST), (450, 20, 60, 50), 1000, 480.0),  # whichever pod was complete last
        ((FIRST,), (450, 440), 445, 60.0),
        ((FIRST,), (450, 440), 430, 33.0),  # they were there when the scheduler was first heard
        ((FIRST, LAST), (), 1000, 33.0),  # or nobody heard them join
        ((), (), 1000, 33.0),
        ((pod(OF, "gpu", 0, created=NOW - 500, restarts=1),), (450, 440), 1000, 33.0),  # joined after a restart
        ((pod(OF, "gpu", 0, created=NOW - 9000),), (450, 440), 1000, 33.0),  # it waited for room
    ],
)
def test_start_seconds(pods: tuple, ago: tuple[float, ...], since: float, expected: float):
    of_pods = tuple(one for one in WORKERS if any(one.name.startswith(p.dask_name) for p in pods))
    found = seen(
        OF, *pods, says=demand(workers=of_pods), first_joined=joined(*ago), scheduler_since=NOW - since, memory=MEMORY
    )
    assert StartTimes.of(found, "gpu").last == expected


def test_nobody_knows_before_the_first():
    assert StartTimes.of(seen(OF, says=demand()), "gpu").last is None


@pytest.mark.parametrize(
    ("memory", "elsewhere", "expected"),
    [
        ({}, {}, None),
        ({}, {"gpu": 7.0, "cpu": 2.0}, 7.0),
        ({}, {"gpu": 240.0}, 60.0),
        (MEMORY, {"gpu": 7.0}, 33.0),
        ({}, {"cpu": 2.0}, None),
    ],
)
def test_a_pools_first_pod_is_expected_to_need_what_one_like_it_took_elsewhere(
    memory: dict, elsewhere: dict, expected: float | None
):
    found = seen(OF, says=demand(), memory=memory, known_starts=elsewhere)
    assert StartTimes.of(found, "gpu").expected == expected


def test_the_slowest_start_is_that_of_a_pod_for_which_a_node_had_to_come():
    found = seen(
        OF, FIRST, LAST, says=demand(workers=WORKERS), first_joined=joined(300, 290, 60, 50), scheduler_since=NOW - 999
    )
    assert (StartTimes.of(found, "gpu").slowest, StartTimes.of(found, "gpu").last) == (210.0, 50.0)
    nobody = seen(OF, says=demand(), memory=MEMORY)
    assert StartTimes.of(nobody, "gpu").slowest == 33.0


def test_a_pod_holds_its_node_from_when_it_got_it_and_the_longest_of_those_that_are_there_counts():
    found = seen(
        OF, FIRST, LAST, says=demand(workers=WORKERS), first_joined=joined(300, 290, 60, 50), scheduler_since=NOW - 999
    )
    assert StartTimes.of(found, "gpu").held == 100.0
    assert StartTimes.of(seen(OF, says=demand(), memory=MEMORY), "gpu").held == 22.0
    assert StartTimes.of(seen(OF, says=demand()), "gpu").held == 0.0


@pytest.mark.parametrize(("status", "placed"), [("True", 1_800_000_000.0), ("False", 0.0)])
def test_a_pod_got_its_node_when_its_condition_says_so(status: str, placed: float):
    condition = {"type": "PodScheduled", "status": status, "lastTransitionTime": "2027-01-15T08:00:00Z"}
    metadata = {"uid": "u", "name": "n", "namespace": "default", "resourceVersion": "1"}
    assert parse_pod({"metadata": metadata, "status": {"conditions": [condition]}}).placed == placed
