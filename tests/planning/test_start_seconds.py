"""How long a pool's pods take to start, as far as it was seen."""

from __future__ import annotations

import pytest

from gpudask.planning.observed import PoolMemory
from gpudask.scaling.lookahead import LONGEST_START_SECONDS
from tests.planning.builders import NOW, cluster, demand, gpu_pool, pod, seen, worker

OF = cluster(gpu_pool(count=2))
FIRST = pod(OF, "gpu", 0, created=NOW - 500)
LAST = pod(OF, "gpu", 1, created=NOW - 100)
WORKERS = tuple(worker(one, index) for one in (FIRST, LAST) for index in (0, 1))
MEMORY = {"gpu": PoolMemory(start_seconds=33.0)}


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
        ((pod(OF, "gpu", 0, created=NOW - 9000),), (450, 440), 1000, LONGEST_START_SECONDS),
    ],
)
def test_start_seconds(pods: tuple, ago: tuple[float, ...], since: float, expected: float):
    of_pods = tuple(one for one in WORKERS if any(one.belongs_to(p.dask_name) for p in pods))
    found = seen(
        OF, *pods, says=demand(workers=of_pods), joined=joined(*ago), scheduler_since=NOW - since, memory=MEMORY
    )
    assert found.start_seconds("gpu") == expected


def test_nobody_knows_before_the_first():
    assert seen(OF, says=demand()).start_seconds("gpu") is None


def test_the_slowest_start_is_that_of_a_pod_for_which_a_node_had_to_come():
    found = seen(
        OF, FIRST, LAST, says=demand(workers=WORKERS), joined=joined(300, 290, 60, 50), scheduler_since=NOW - 999
    )
    assert (found.slowest_start_seconds("gpu"), found.start_seconds("gpu")) == (210.0, 50.0)
    nobody = seen(OF, says=demand(), memory=MEMORY)
    assert nobody.slowest_start_seconds("gpu") == 33.0
