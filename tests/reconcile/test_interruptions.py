"""The operator is killed, the API server restarts, a watch is cut: the end state is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudask.desired.disruption import SAFE_TO_EVICT
from gpudask.planning import eviction
from gpudask.reconcile.operator import Operator
from gpudask.settings import Settings
from local.clusters.api_server import ApiServer
from tests.builders import a_pool
from tests.planning.builders import gpu_pool
from tests.reconcile.proxy import Proxy
from tests.reconcile.stage import OperatorProcess, Stage, eventually, operating, stays

pytestmark = pytest.mark.api


async def test_killed_while_it_scales_up_it_goes_on(stage: Stage, tmp_path: Path):
    stage.kubelet.idle.add("cpu")
    with OperatorProcess(stage.settings, tmp_path / "first.log"):
        await stage.apply(a_pool(replicas=30))
        await eventually(stage.names, lambda names: len(names) >= 3, "the first pods")
    at_death = len(await stage.names())
    print(f"killed at {at_death} of 30 pods")
    stage.kubelet.idle.clear()
    stage.kubelet.look_again()
    async with operating(stage.settings):
        await stage.shows("Ready", "True AllReady")
        assert sorted(await stage.names()) == sorted(f"demo-cpu-worker-{n}" for n in range(30))


async def test_killed_in_the_middle_of_a_drain_it_ends_the_drain(stage: Stage, tmp_path: Path):
    with OperatorProcess(stage.settings, tmp_path / "first.log"):
        await stage.apply(a_pool(replicas=2))
        await stage.shows("Ready", "True AllReady")
        scheduler = await stage.scheduler()
        await eventually(_count(lambda: len(scheduler.pods)), lambda n: n == 2, "both workers are registered")
        scheduler.busy = set(scheduler.pods)
        await scheduler.say()
        await stage.apply(a_pool(replicas=1))
        await eventually(_count(lambda: len(scheduler.retiring)), lambda n: n == 1, "one retires")
    (leaving,) = scheduler.retiring
    polls = scheduler.polls
    async with operating(stage.settings):
        await eventually(_count(lambda: scheduler.polls), lambda n: n > polls, "the next operator listens")
        await stays(_count(lambda: set(scheduler.retiring)), {leaving}, 0.5)
        assert len(await stage.names()) == 2, "it is busy: nothing is cut"
        scheduler.busy.discard(leaving)
        await scheduler.say()
        await eventually(stage.names, lambda names: len(names) == 1, "the drained pod is gone")
        assert leaving.rpartition("-")[0] not in await stage.names()


async def test_an_operator_that_was_away_writes_nothing_where_nothing_changed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(eviction, "REST_SECONDS", 3600.0)  # else pods are marked as resting in the midst of it
    async with operating(stage.settings):
        await stage.apply(a_pool(replicas=1), gpu_pool())
        await stage.shows("Ready", "True AllReady")
        await stage.shows("DemandServable", "True Servable")

    async def versions() -> set[str]:
        found = [await stage.cluster(), *await stage.list("pods"), *await stage.list("services")]
        return {item["metadata"]["resourceVersion"] for item in found}

    before = await versions()
    scheduler = stage.kubelet.schedulers["demo"]
    polls = scheduler.polls
    async with operating(stage.settings):
        await eventually(_count(lambda: scheduler.polls), lambda n: n > polls + 1, "the next operator listens")
        pods = {item["metadata"]["uid"] for item in await stage.list("pods")}
        await stays(lambda: _uids(stage), pods, 1.0)
    assert len(await versions() - before) <= 1, "the status alone may have been unknown for a moment"


async def test_the_api_server_restarts_and_the_operator_goes_on(
    stage: Stage, operator: Operator, api_server: ApiServer
):
    await stage.apply(a_pool(replicas=1))
    await stage.shows("Ready", "True AllReady")
    api_server.restart()
    await stage.apply(a_pool(replicas=3))
    await stage.shows("Ready", "True AllReady")
    assert len(await stage.names()) == 3


async def test_pods_that_vanish_while_a_watch_is_blind_leave_no_ghosts(stage: Stage, proxy: Proxy, through: Settings):
    async with operating(through):
        await stage.apply(a_pool(replicas=4))
        await stage.shows("Ready", "True AllReady")
        # The answer to a write shows the operator a pod that ends. So its last ones, which say that the pods rest:
        await eventually(lambda: _marked(stage), lambda marks: marks == ["true"] * 4, "it has nothing left to write")
        proxy.blind = True
        for number in range(2):
            await stage.delete("pods", f"demo-cpu-worker-{number}", gracePeriodSeconds=0)
        await stays(stage.names, ["demo-cpu-worker-2", "demo-cpu-worker-3"], 0.5)
        await proxy.expire()
        await stage.becomes(stage.names, [f"demo-cpu-worker-{n}" for n in range(4)], "no ghost counts as a pod")
        await stage.shows("Ready", "True AllReady")
        await stays(stage.names, [f"demo-cpu-worker-{n}" for n in range(4)], 1.0)
    assert proxy.expired >= 4, "pods, services, configmaps and budgets were cut"


async def test_a_cluster_deleted_while_the_watch_is_blind_gets_no_pods(stage: Stage, proxy: Proxy, through: Settings):
    async with operating(through) as operator:
        await stage.apply(a_pool(replicas=2))
        await stage.shows("Ready", "True AllReady")
        proxy.blind = True
        assert operator._context is not None
        clock = operator._context.clock
        operator._context.clock = lambda: clock() + 10  # its copy of the resource is old by now
        await stage.delete_cluster()
        for number in range(2):
            await stage.delete("pods", f"demo-cpu-worker-{number}", gracePeriodSeconds=0)
        await proxy.expire()
        await stays(stage.names, [], 2.0)


@pytest.mark.parametrize("fault", ["failing", "losing"])
async def test_creations_answered_with_5xx_are_tried_again_and_make_no_pod_twice(
    fault: str, stage: Stage, proxy: Proxy, through: Settings
):
    setattr(proxy, fault, 3)  # the scheduler's, and two workers'
    async with operating(through):
        await stage.apply(a_pool(replicas=3))
        await stage.shows("Ready", "True AllReady")
        await stays(stage.names, [f"demo-cpu-worker-{n}" for n in range(3)], 1.0)
    assert (getattr(proxy, fault), proxy.created) == (0, 4)


async def _marked(stage: Stage) -> list[str]:
    return [pod["metadata"]["annotations"][SAFE_TO_EVICT] for pod in await stage.pods()]


def _count(look):  # noqa: ANN001, ANN202
    async def count():  # noqa: ANN202
        return look()

    return count


async def _uids(stage: Stage) -> set[str]:
    return {item["metadata"]["uid"] for item in await stage.list("pods")}
