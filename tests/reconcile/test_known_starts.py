"""What one cluster's pods took to start is known to the next cluster, as long as their nodes may still be there."""

from __future__ import annotations

import pytest

from gpudask.planning.pool_view import Start
from gpudask.reconcile.loop_memory import KnownStarts
from gpudask.scaling import sizing
from tests.builders import a_pool
from tests.planning.builders import gpu_pool
from tests.reconcile.fake_dask import FakeScheduler
from tests.reconcile.stage import Stage, operating, stays

MINUTE = 60.0


def start(spec_hash: str, at: float, seconds: float) -> Start:
    return Start(at, seconds, seconds, spec_hash)


def test_the_last_start_of_a_spec_counts_whoever_is_told_of_last():
    starts = KnownStarts()
    slow, quick = start("gpu", 1000.0, 240.0), start("gpu", 2000.0, 7.0)
    for each in (slow, quick, slow, start("cpu", 1500.0, 3.0)):  # the slow one is still there, in another cluster
        starts.record(each, 2001.0)
    assert (starts.seconds("gpu", 2002.0), starts.seconds("cpu", 2002.0)) == (7.0, 3.0)
    assert starts.seconds("other", 2002.0) is None


@pytest.mark.parametrize(("minutes", "expected"), [(19, 7.0), (21, None)])
def test_it_is_forgotten_once_nobody_told_of_such_a_pod_for_twenty_minutes(minutes: float, expected: float | None):
    starts = KnownStarts()
    starts.record(start("gpu", 0.0, 7.0), 0.0)
    starts.record(start("gpu", 0.0, 7.0), 10 * MINUTE)  # it is still there
    assert starts.seconds("gpu", (10 + minutes) * MINUTE) == expected


def test_what_was_forgotten_does_not_come_back_with_an_older_start():
    starts = KnownStarts()
    starts.record(start("gpu", 100.0, 7.0), 100.0)
    starts.record(start("gpu", 50.0, 9.0), 100.0 + 21 * MINUTE)
    assert starts.seconds("gpu", 100.0 + 21 * MINUTE) == 9.0


def test_what_is_forgotten_takes_no_room():
    starts = KnownStarts()
    for n in range(1000):
        starts.record(start(str(n), n * MINUTE, 1.0), n * MINUTE)
    assert len(starts._known) <= 21


@pytest.mark.api
@pytest.mark.parametrize("beside", ["alike", "another-image", "nobody"])
async def test_a_new_cluster_orders_its_first_gpu_pod_as_late_as_anothers_start_allows(
    stage: Stage, beside: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sizing, "UNKNOWN_START_SECONDS", 7200.0)  # far more than any start here takes
    pools = [a_pool(replicas=1), gpu_pool()]
    async with operating(stage.settings):
        if beside != "nobody":
            await stage.apply(*pools, name="first", **({} if beside == "alike" else {"image": "another:1"}))
            scheduler = await stage.scheduler("first")
            await scheduler.want(1, GPU=1)
            await stage.becomes(lambda: stage.names("first", "gpu"), ["first-gpu-worker-0"])
            await stage.becomes(lambda: workers(stage, "first"), 1)
        await stage.apply(*pools, name="second")
        scheduler = await stage.scheduler("second")
        await stage.becomes(lambda: stage.names("second", "cpu"), ["second-cpu-worker-0"])
        await wait_for_inputs(scheduler, 3600.0)
        if beside == "alike":
            await stays(lambda: stage.names("second", "gpu"), [], 2.0)
            await wait_for_inputs(scheduler, 0.0)
        await stage.becomes(lambda: stage.names("second", "gpu"), ["second-gpu-worker-0"])


async def workers(stage: Stage, name: str) -> int:
    """How many GPU workers the status of a cluster counts."""
    rows = (await stage.status(name)).get("pools", [])
    return sum(row.get("workers", 0) for row in rows if row["name"] == "gpu")


async def wait_for_inputs(scheduler: FakeScheduler, seconds: float) -> None:
    """GPU tasks are there, the first of which can run in so long."""
    row = {"resources": {"GPU": 1}, "waiting": 5, "unrunnable": 0, "processing": 0, "since_seconds": 0.0}
    scheduler.demand = [row | {"seconds": 0.0, "unknown": 5, "next_seconds": seconds, "next_tasks": 1}]
    scheduler.tasks = 5
    await scheduler.say()
