"""A scheduler that is refused keeps its workers from being made, and those of a lost one make room for the next."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gpudask.api.resource import LABEL_POOL
from gpudask.reconcile.operator import Operator
from tests.builders import a_pool
from tests.clients.fake_api_server import refusal
from tests.eventually import eventually_async
from tests.reconcile.in_memory import Operated, becomes, operated
from tests.reconcile.stage import Stage, stays
from tests.virtual_time import VirtualPolicy

QUOTA = refusal(403, "exceeded quota: few, requested: pods=1, used: pods=3, limited: pods=3", "Forbidden")
POLICY = refusal(422, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", "Invalid")
TYPO = refusal(400, 'strict decoding error: unknown field "spec.x"', "BadRequest")
DEAD = refusal(500, 'failed calling webhook "w.example": connection refused', "InternalError")

POOLS = a_pool("cpu", replicas=2), a_pool("gpu", gpu={}, replicas=1)
WORKERS = ["demo-cpu-worker-0", "demo-cpu-worker-1", "demo-gpu-worker-0"]


@pytest.fixture
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    """Back-offs of minutes pass at once; not on a real API server."""
    return asyncio.DefaultEventLoopPolicy() if request.node.get_closest_marker("api") else VirtualPolicy()


def workers(on: Operated) -> list[str]:
    return [name for name in on.pods() if "worker" in name]


def scheduler(on: Operated) -> str:
    return next((name for name in on.pods() if "scheduler" in name), "")


def creations(on: Operated) -> list[str]:
    return [said.removeprefix("POST pods ") for said in on.server.log if said.startswith("POST pods ")]


@pytest.mark.parametrize("answer", [QUOTA, POLICY, TYPO, DEAD], ids=["quota", "policy", "template", "dead webhook"])
async def test_no_worker_is_made_before_a_scheduler_that_is_refused(answer: Any):
    async with operated(random=lambda: 0.5) as on:
        fault = on.server.fail("POST", "/pods", answer, name="scheduler")
        on.apply(*POOLS)
        await becomes(lambda: fault.met, lambda met: met >= 4)
        assert on.pods() == []
        assert all("scheduler" in name for name in creations(on)), "none was even asked for"
        on.server.mend()
        await becomes(lambda: workers(on), WORKERS, seconds=60)
        assert "scheduler" in creations(on)[fault.met], "it came first"
        await becomes(lambda: on.condition("Degraded"), "False Healthy: ")


async def test_the_scheduler_and_its_workers_are_made_in_one_pass():
    async with operated() as on:
        on.server.seconds = 0.001
        on.apply(*POOLS)
        await becomes(lambda: workers(on), WORKERS)
        first = creations(on)[0]
        assert "scheduler" in first
        log = on.server.log
        between = log[log.index(f"POST pods {first}") + 1 : log.index("POST pods demo-gpu-worker-0")]
        assert not [said for said in between if said.startswith("PATCH gpudaskclusters")], "no status in between"


async def test_workers_wait_for_a_creation_of_the_scheduler_that_hangs_and_for_no_longer():
    async with operated() as on:
        answers = asyncio.Event()
        fault = on.server.fail("POST", "/pods", until=answers, name="scheduler")
        on.apply(*POOLS)
        await becomes(lambda: fault.met, 1)
        await asyncio.sleep(5.0)
        assert on.pods() == []
        answers.set()
        await becomes(lambda: workers(on), WORKERS)
        assert fault.met == 1


async def test_one_worker_without_gpus_makes_room_for_the_next_scheduler():
    async with operated(random=lambda: 0.5) as on:
        on.apply(*POOLS)
        await becomes(lambda: workers(on), WORKERS)
        fault = on.server.fail("POST", "/pods", QUOTA, name="scheduler")
        on.server.on_request = lambda said: on.server.mend(fault) if said.startswith("DELETE pods demo-cpu") else None
        on.lose(scheduler(on))
        took = await becomes(lambda: scheduler(on), bool, seconds=60)
        assert 9.0 < took < 20.0
        assert workers(on) == ["demo-cpu-worker-0", "demo-gpu-worker-0"]
        assert [said for said in on.server.log if said.startswith("DELETE pods")] == ["DELETE pods demo-cpu-worker-1"]


async def test_where_a_policy_refuses_the_next_scheduler_its_workers_stay():
    async with operated(random=lambda: 0.5) as on:
        on.apply(*POOLS)
        await becomes(lambda: workers(on), WORKERS)
        fault = on.server.fail("POST", "/pods", POLICY, name="scheduler")
        on.lose(scheduler(on))
        await becomes(lambda: fault.met, lambda met: met >= 8, seconds=600)
        assert workers(on) == WORKERS
        assert not [said for said in on.server.log if said.startswith("DELETE pods")]


async def limit(stage: Stage, used: int, hard: int = 4) -> None:
    """A quota of pods; its usage is a controller's figure, and none runs here."""
    if await stage.get("resourcequotas", "few") is None:
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
        await stage.create("resourcequotas", quota | {"spec": {"hard": {"pods": str(hard)}}})
    status = {"status": {"hard": {"pods": str(hard)}, "used": {"pods": str(used)}}}
    await stage.patch("resourcequotas", "few/status", status)


async def schedulers(stage: Stage) -> list[str]:
    pods = await stage.list("pods")
    return [
        pod["metadata"]["name"]
        for pod in pods
        if LABEL_POOL not in pod["metadata"].get("labels", {}) and "deletionTimestamp" not in pod["metadata"]
    ]


@pytest.mark.api
async def test_a_full_quota_lets_no_worker_take_the_place_of_its_scheduler(stage: Stage, operator: Operator):
    await limit(stage, used=4)
    await stage.apply(*POOLS)
    said = await stage.shows("Degraded", "True QuotaExceeded: scheduler: ")
    assert "exceeded quota: few, requested: pods=1, used: pods=4, limited: pods=4; since 20" in said
    assert said.endswith("until it is there no worker is made: raise the quota, or end other pods of the namespace")
    await stays(stage.names, [], 2.0)
    await limit(stage, used=3)
    await eventually_async(lambda: schedulers(stage), bool, "the one place is the scheduler's", seconds=120)
    assert "exceeded quota: few" in await stage.shows("Degraded", "True QuotaExceeded: pool ")
    await limit(stage, used=1)
    await stage.becomes(stage.names, WORKERS, "no edit is needed", seconds=120)
    await stage.shows("Ready", "True AllReady")


@pytest.mark.api
async def test_a_worker_makes_room_for_the_next_scheduler_in_a_full_quota(stage: Stage, operator: Operator):
    await limit(stage, used=0)
    await stage.apply(*POOLS)
    await stage.shows("Ready", "True AllReady")
    (lost,) = await schedulers(stage)
    await stage.delete("pods", lost)  # and another pod of the namespace takes its place: used stays 4
    said = await stage.shows("Degraded", "True QuotaExceeded: scheduler: ", seconds=120)
    assert "its 3 worker pods are deleted one after another to make room" in said
    left = ["demo-cpu-worker-0", "demo-gpu-worker-0"]
    await stage.becomes(stage.names, left, "one makes room, without GPUs", seconds=120)
    await eventually_async(lambda: stage.get("pods", "demo-cpu-worker-1"), lambda pod: pod is None, "it is gone")
    await limit(stage, used=3)
    await eventually_async(lambda: schedulers(stage), bool, "the next scheduler", seconds=120)
    assert await stage.names() == left
    await limit(stage, used=0)
    await stage.becomes(stage.names, WORKERS, "it is made again once there is room", seconds=120)
    await stage.shows("Ready", "True AllReady")
