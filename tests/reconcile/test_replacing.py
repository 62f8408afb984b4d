"""Recycled pods, and drains whose deadline is over, as the operator handles them."""

from __future__ import annotations

import pytest

from gpudask.reconcile.operator import Operator
from tests.builders import a_pool
from tests.reconcile.fake_dask import FakeScheduler
from tests.reconcile.stage import Stage, eventually, stays

pytestmark = pytest.mark.api


async def registered(stage: Stage, scheduler: FakeScheduler, count: int) -> list[str]:
    """The Dask names of the pods, once so many are registered."""

    async def look() -> list[str]:
        return sorted(scheduler.pods)

    await stage.shows("Ready", "True AllReady")
    return list(await eventually(look, lambda names: len(names) == count, f"{count} workers"))


async def reasons(stage: Stage) -> set[str]:
    return {event["reason"] for event in await stage.list("events", "events.k8s.io/v1")}


async def test_a_drain_that_does_not_end_is_forced_after_its_timeout_and_the_pods_hook_is_let_go(
    stage: Stage, operator: Operator
) -> None:
    await stage.apply(a_pool(replicas=2, drainTimeout="100s"))
    scheduler = await stage.scheduler()
    names = await registered(stage, scheduler, 2)
    scheduler.stuck = set(names)
    stage.kubelet.keeps.update({"demo-cpu-worker-0", "demo-cpu-worker-1"})
    await stage.apply(a_pool(replicas=1, drainTimeout="100s"))

    async def wishes() -> list[tuple[str, bool]]:
        return [(item["pod"], item.get("forced", False)) for item in scheduler.desired.get("retiring", ())]

    ((leaving, forced),) = await eventually(wishes, bool, "one retires")
    assert not forced
    await stays(lambda: _count(stage), 2, 0.5)
    assert operator._context is not None
    clock = operator._context.clock
    operator._context.clock = lambda: clock() + 110
    await scheduler.say()
    await eventually(lambda: _count(stage), lambda count: count == 1, "it is deleted")
    await stage.becomes(wishes, [(leaving, True)], "its hook is told that nobody waits")
    await eventually(lambda: reasons(stage), lambda found: "DrainForced" in found, "an event says so")
    assert leaving in (await stage.status())["pools"][0]["forced"]


async def test_a_pod_with_a_sick_device_is_replaced(stage: Stage, operator: Operator) -> None:
    del operator
    await stage.apply(a_pool("gpu", gpu={}, replicas=1))
    scheduler = await stage.scheduler()
    (name,) = await registered(stage, scheduler, 1)
    scheduler.rows[name] = {"sick": "3 tasks in a row failed: cudaErrorECCUncorrectable"}
    await scheduler.say()

    async def others() -> list[str]:
        return [other for other in scheduler.pods if other != name]

    await eventually(others, lambda found: len(found) == 1, "another one has come")
    await eventually(lambda: reasons(stage), lambda found: "PodReplaced" in found, "an event says so")
    await stage.shows("Degraded", "False Healthy")
    assert "cudaErrorECCUncorrectable" in (await stage.status())["pools"][0]["replaced"]


async def test_a_worn_pod_is_replaced_new_one_first(stage: Stage, operator: Operator) -> None:
    del operator
    await stage.apply(a_pool(replicas=1, recycle={"afterTasks": 100}))
    scheduler = await stage.scheduler()
    (name,) = await registered(stage, scheduler, 1)
    scheduler.rows[name] = {"tasks_done": 99}
    await scheduler.say()
    await stays(lambda: _names(scheduler), [name], 0.5)
    scheduler.rows[name] = {"tasks_done": 100}
    scheduler.stuck = {name}
    await scheduler.say()
    await eventually(lambda: _names(scheduler), lambda found: len(found) == 2, "the new one comes first")
    scheduler.stuck.clear()
    await scheduler.say()
    await eventually(lambda: _names(scheduler), lambda found: len(found) == 1 and name not in found, "the old one goes")
    await eventually(lambda: reasons(stage), lambda found: "PodReplaced" in found, "an event says so")


async def _count(stage: Stage) -> int:
    return len(await stage.names())


async def _names(scheduler: FakeScheduler) -> list[str]:
    return sorted(scheduler.pods)
