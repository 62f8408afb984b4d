"""Two operators on one API server: one leads, another takes over; and without an election they still do no harm."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpudask.clients.lease import Lease, Record
from gpudask.reconcile.election import Timing
from gpudask.reconcile.operator import Operator
from gpudask.settings import Settings
from tests.builders import a_pool
from tests.planning.builders import gpu_pool
from tests.reconcile.stage import OperatorProcess, Stage, StandingClock, eventually, operating

pytestmark = pytest.mark.api


def named(settings: Settings, identity: str, lease: str = "gpudask") -> Settings:
    return replace(settings, identity=identity, lease=lease)


async def lease(stage: Stage) -> Record:
    found = await Lease(stage.api, stage.namespace, "gpudask").get()
    return found or Record("", 0, "", 0, "")


async def holder(stage: Stage) -> str:
    return (await lease(stage)).holder


async def test_the_second_stands_by_with_warm_caches(stage: Stage):
    async with operating(named(stage.settings, "second")) as second:
        await stage.becomes(lambda: holder(stage), "second")
        async with operating(named(stage.settings, "first")) as first:
            await stage.apply(a_pool(replicas=2))
            await stage.shows("Ready", "True AllReady")
            assert (first.leads, second.leads) == (False, True)
            assert first.registry._loops == {}, "who stands by acts on nothing"
            await eventually(lambda: _known(first), lambda known: known == 1, "and knows the cluster")


async def test_a_clean_stop_hands_over_without_waiting_until_the_lease_has_run_out(stage: Stage):
    """How quickly is measured by `make bench-ha`."""
    async with operating(named(stage.settings, "second")) as second:
        await stage.becomes(lambda: holder(stage), "second")
        async with operating(named(stage.settings, "third")) as third:
            await stage.apply(a_pool(replicas=1))
            await stage.shows("Ready", "True AllReady")
            (election,) = (task for task in second._tasks if task.get_name().startswith("election "))
            election.get_loop().call_soon_threadsafe(election.cancel)
            await eventually(lambda: _leads(third), bool, "the third leads")
            await stage.apply(a_pool(replicas=3))
            await eventually(stage.names, lambda names: len(names) == 3, "it acts")


async def test_a_takeover_shows_in_no_status(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    """Who takes over has heard no scheduler yet: it says nothing before it has, instead of that nothing is known."""
    said: list[str] = []

    async def watch() -> None:
        query = {"watch": "true", "resourceVersion": "0"}
        async with aclosing(stage.api.stream(stage._clusters, query=query)) as events:
            async for event in events:
                status = event["object"].get("status", {})
                items = {item["type"]: item for item in status.get("conditions", ())}
                workers = sum(pool.get("workers", 0) for pool in status.get("pools", ()))
                said.append(f"{items.get('DemandServable', {}).get('reason')}, {workers} workers")

    async with operating(named(stage.settings, "second")) as second:
        await stage.becomes(lambda: holder(stage), "second")
        async with operating(named(stage.settings, "third")) as third:
            await stage.apply(a_pool(replicas=1))
            scheduler = await stage.scheduler()
            await stage.shows("DemandServable", "True")
            await eventually(stage.workers, lambda workers: workers == [1], "it is counted")
            watching = asyncio.create_task(watch())
            await eventually(lambda: _same(said), lambda seen: len(seen) == 1, "the watch has begun")
            polls = scheduler.polls
            _answers_late(third, monkeypatch)
            (election,) = (task for task in second._tasks if task.get_name().startswith("election "))
            election.get_loop().call_soon_threadsafe(election.cancel)
            await eventually(lambda: _leads(third), bool, "the third leads")
            await eventually(lambda: _same(scheduler.polls), lambda now: now > polls + 1, "and has heard it")
            await asyncio.sleep(1)
            watching.cancel()
    assert set(said) == {"Servable, 1 workers"}, said


async def test_a_killed_one_that_is_started_again_goes_on_without_waiting(stage: Stage, tmp_path: Path):
    with OperatorProcess(named(stage.settings, "pod"), tmp_path / "first.log"):
        await stage.apply(a_pool(replicas=1))
        await stage.shows("Ready", "True AllReady")
    async with operating(named(stage.settings, "pod")):
        await stage.apply(a_pool(replicas=2))
        await eventually(stage.names, lambda names: len(names) == 2, "it acts")
    assert (await lease(stage)).transitions == 0


async def test_a_killed_one_is_followed_by_another_when_its_lease_has_run_out(stage: Stage, tmp_path: Path):
    with OperatorProcess(named(stage.settings, "first"), tmp_path / "first.log") as first:
        await stage.apply(a_pool(replicas=1))
        await stage.shows("Ready", "True AllReady")
        clock = StandingClock()
        async with operating(named(stage.settings, "second"), election_clock=clock) as second:
            first.kill()
            await stage.apply(a_pool(replicas=2))
            await eventually(_attempts(second), lambda made: made >= 3, "it tries to get the Lease")
            assert await holder(stage) == "first"
            assert len(await stage.names()) == 1
            clock.seconds += Timing().lease_seconds
            await eventually(stage.names, lambda names: len(names) == 2, "the second acts")
            assert second.leads
            assert (await lease(stage)).transitions == 1


async def test_without_an_election_two_make_no_pod_twice_and_never_count_back(stage: Stage):
    held: list[float] = []
    async with operating(named(stage.settings, "a", "lease-a")), operating(named(stage.settings, "b", "lease-b")):
        await stage.apply(a_pool(replicas=2), gpu_pool(idle="1s"))
        await stage.shows("Ready", "True AllReady")
        scheduler = await stage.scheduler()
        for _ in range(4):
            await scheduler.want(1, GPU=1)
            await eventually(lambda: stage.names(pool="gpu"), lambda names: len(names) == 1, "a GPU pod, one")
            await scheduler.want(0)
            await stage.becomes(lambda: stage.names(pool="gpu"), [])
            held.append((await stage.status())["pools"][1].get("gpuSecondsHeld", 0.0))
        pods = {pod["metadata"]["uid"] for pod in await stage.pods(pool="cpu")}
        versions = set()
        end = time.monotonic() + 15
        while time.monotonic() < end:
            versions.add((await stage.cluster())["metadata"]["resourceVersion"])
            assert {pod["metadata"]["uid"] for pod in await stage.pods(pool="cpu")} == pods
            held.append((await stage.status())["pools"][1].get("gpuSecondsHeld", 0.0))
    assert held == sorted(held)
    assert len(versions) < 15, "they do not write one over the other all the time"


def _attempts(operator: Operator) -> Callable[[], Awaitable[int]]:
    """How often it has read the Lease since this was called."""
    assert operator._election is not None
    lock, made = operator._election._lock, [0]
    get = lock.get

    async def counted() -> Record | None:
        found = await get()
        made[0] += 1
        return found

    lock.get = counted  # type: ignore[method-assign]
    return lambda: _same(made[0])


def _answers_late(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedulers take half a second: as where an operator begins to listen to many at once."""
    assert operator._context is not None
    demand = operator._context.schedulers.demand

    async def late(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0.5)
        return await demand(*args, **kwargs)

    monkeypatch.setattr(operator._context.schedulers, "demand", late)


async def _same(found: Any) -> Any:
    return found


async def _known(operator: object) -> int:
    return len(operator.registry._bodies)  # type: ignore[attr-defined]


async def _leads(operator: object) -> bool:
    return bool(operator.leads)  # type: ignore[attr-defined]
