"""A clock that is an hour off, or is set by an hour, changes nothing but what people asked for by the clock."""

from __future__ import annotations


from collections.abc import Callable
from typing import Any

import pytest

from gpudask.api.status import iso
from tests.builders import a_manifest, a_pool
from tests.planning.builders import stored
from tests.reconcile.fake_api import Bench, FakeApi

pytestmark = pytest.mark.simulation

GRACE_SECONDS, LOST_SECONDS = 30, 10
HOUR = 3600.0

Jump = Callable[[Bench], None]


def wall_ahead(bench: Bench) -> None:
    bench.wall_jump += HOUR


def wall_back(bench: Bench) -> None:
    bench.wall_jump -= HOUR


def server_ahead(bench: Bench) -> None:
    bench.server_jump += HOUR


def server_back(bench: Bench) -> None:
    bench.server_jump -= HOUR


def nothing(_: Bench) -> None:
    """No clock is set."""


JUMPS = [wall_ahead, wall_back, server_ahead, server_back]
jumps = pytest.mark.parametrize("jump", JUMPS)


def a_bench(*, wall: float = 0.0, server: float = 0.0, api: FakeApi | None = None, **spec: Any) -> Bench:
    pools = (a_pool("cpu", replicas=1), a_pool("gpu", replicas=2, gpu={"count": 1}))
    bench = Bench(api or FakeApi(), stored(a_manifest(*pools, **spec)))
    bench.wall_jump, bench.server_jump = wall, server
    bench.clock.response_received(None, 0.0)
    return bench


def kubelet(bench: Bench, *, off: float = 0.0) -> None:
    """All pods run, on a node whose clock is so far off."""
    for path, body in list(bench.api.objects.items()):
        if "/pods/" in path:
            at = iso(bench.api.now() + off, to="seconds")
            main = {"name": "dask", "restartCount": 0, "state": {"running": {"startedAt": at}}}
            placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}
            status = {"phase": "Running", "containerStatuses": [main], "conditions": [placed]}
            bench.api.put(path, body | {"spec": body["spec"] | {"nodeName": "node"}, "status": status})
    bench.watch()


def delete(bench: Bench, part: str) -> None:
    """Somebody deletes the pod, which takes its grace."""
    path = next(path for path in bench.api.objects if "/pods/" in path and part in path)
    body = bench.api.objects[path]
    gone_at = iso(bench.api.now() + GRACE_SECONDS, to="seconds")
    bench.api.put(
        path,
        body
        | {
            "metadata": body["metadata"]
            | {
                "deletionTimestamp": gone_at,
                "deletionGracePeriodSeconds": GRACE_SECONDS,
            }
        },
    )
    bench.watch()


def held_seconds(bench: Bench) -> float:
    """The GPU-seconds of the pool, as last counted."""
    status = bench.passes._status_writer.status
    return next(pool.gpu_seconds_held for pool in status.pools if pool.name == "gpu")


async def writes(bench: Bench, seconds: float) -> list[tuple[float, str]]:
    """What is written to anything but the status, second by second."""
    found = []
    for _ in range(int(seconds)):
        before = len(bench.api.asked)
        await bench.run(1.0)
        asked = bench.api.asked[before:]
        found += [(bench.now, what) for what in asked if "GET" not in what and "/status" not in what]
    return found


async def a_life(jump: Jump) -> tuple[list[tuple[float, str]], float, list[str]]:
    """A cluster starts, works, loses its scheduler; all that is written, the GPU-seconds, and the pods at the end."""
    bench = a_bench()
    told = await writes(bench, 5)
    jump(bench)
    told += await writes(bench, 5)
    kubelet(bench)
    told += await writes(bench, 30)
    jump(bench)
    told += await writes(bench, 120)
    delete(bench, "scheduler")
    told += await writes(bench, 10)
    jump(bench)
    told += await writes(bench, 60)
    bench.api.objects = {p: b for p, b in bench.api.objects.items() if "deletionTimestamp" not in b["metadata"]}
    told += await writes(bench, 30)
    return told, held_seconds(bench), bench.names()


@jumps
async def test_a_clock_that_is_set_changes_nothing_in_a_clusters_life(jump: Jump):
    told, held, names = await a_life(nothing)
    jumped, jumped_held, jumped_names = await a_life(jump)
    assert jumped == told
    assert jumped_held == pytest.approx(held, abs=2.0)
    assert held > 2 * 150
    assert jumped_names == names


@pytest.mark.parametrize("off", [-HOUR, 0.0, HOUR])
@pytest.mark.parametrize("jump", [nothing, *JUMPS])
async def test_no_second_scheduler_beside_one_that_ends(jump: Jump, off: float):
    bench = a_bench(server=off)
    await bench.run(2)
    kubelet(bench, off=off)
    await bench.run(5)
    delete(bench, "scheduler")
    jump(bench)
    await bench.run(GRACE_SECONDS + LOST_SECONDS - 2)
    assert sum("scheduler" in name for name in bench.names()) == 1
    await bench.run(4)
    assert sum("scheduler" in name for name in bench.names()) == 2  # its node is lost


@pytest.mark.parametrize("off", [-HOUR, HOUR])
async def test_an_operator_that_starts_beside_a_scheduler_that_ends_begins_no_second_one(off: float):
    bench = a_bench(server=off)
    await bench.run(2)
    kubelet(bench)
    delete(bench, "scheduler")
    bench.server_jump += off  # nobody can tell how long it has had
    again = Bench(bench.api, stored(a_manifest(a_pool("cpu", replicas=1))))
    again.server_jump = bench.server_jump
    again.watch()
    await again.run(GRACE_SECONDS)
    assert sum("scheduler" in name for name in again.names()) == 1


@pytest.mark.parametrize("server", [-HOUR, HOUR])
@pytest.mark.parametrize("wall", [-HOUR, HOUR])
async def test_gpu_seconds_go_on_over_a_restart_by_the_api_servers_time(server: float, wall: float):
    bench = a_bench(server=server)
    await bench.run(2)
    kubelet(bench)
    await bench.run(20)
    body = next(body for path, body in bench.api.objects.items() if path.endswith("/gpudaskclusters/demo"))
    # The status that is there was written when the pods were new: what came after it is counted as well.
    again = Bench(bench.api, body)
    again.now, again.server_jump, again.wall_jump = bench.now + 100, server, wall
    again.watch()
    await again.run(7)
    assert held_seconds(again) == pytest.approx(2 * 120, abs=2 * 4)  # its last pass was then


async def test_an_override_ends_by_the_wall_clock():
    until = {"pool": "cpu", "replicas": 3, "until": "2027-01-15T08:30:00Z"}
    bench = a_bench(overrides=[until])
    await bench.run(10)
    assert sum("cpu" in name for name in bench.names()) == 3
    wall_ahead(bench)
    before = len(bench.api.asked)
    await bench.run(700)
    assert any(what.startswith("DELETE") and "cpu" in what for what in bench.api.asked[before:])
