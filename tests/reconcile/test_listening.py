"""A pool of ucxx beside a running cluster of tcp, on a real API server: its pods come once the scheduler listens."""

from __future__ import annotations

import pytest

from gpudask.reconcile.operator import Operator
from tests.builders import a_pool
from tests.reconcile.stage import Stage

pytestmark = pytest.mark.api

CPU = a_pool("cpu", replicas=1)
GPU = a_pool("gpu", gpu={}, replicas=1, protocol="ucxx")
LACKS = "ValueError: unknown address scheme 'ucxx'"


async def scheduler_uids(stage: Stage) -> list[str]:
    pods = [pod["metadata"] for pod in await stage.list("pods")]
    return [meta["uid"] for meta in pods if "-scheduler-" in meta["name"]]


async def test_its_pods_come_once_the_scheduler_listens_which_is_not_restarted(stage: Stage, operator: Operator):
    await stage.apply(CPU)
    await stage.shows("Ready", "True AllReady")
    scheduler, before = await stage.scheduler(), await scheduler_uids(stage)
    assert "listen" not in scheduler.desired["pools"]["cpu"]

    scheduler.lacks["ucxx"] = LACKS
    await stage.apply(CPU, GPU)
    message = await stage.shows("Degraded", "True SchedulerNotListening")
    assert f"pool gpu: its pods are not made, since the scheduler does not listen for ucxx: {LACKS}" in message
    assert "its image needs distributed-ucxx" in message
    assert scheduler.desired["pools"]["gpu"]["listen"] == {"ucxx": 8788}
    assert await stage.names(pool="gpu") == []

    scheduler.lacks.clear()
    await scheduler.say()
    await stage.shows("Ready", "True AllReady")
    await stage.shows("Degraded", "False Healthy")
    (pod,) = await stage.pods(pool="gpu")
    address = f"ucxx://demo-scheduler-headless.{stage.namespace}.svc:8788"
    assert address in pod["spec"]["containers"][0]["args"]
    headless = await stage.get("services", "demo-scheduler-headless")
    assert headless is not None
    assert [port["port"] for port in headless["spec"]["ports"]] == [8786, 8787, 8788]
    assert (await stage.status())["scheduler"]["address"] == f"tcp://demo-scheduler.{stage.namespace}.svc:8786"
    assert await scheduler_uids(stage) == before


async def test_a_new_scheduler_is_asked_again(stage: Stage, operator: Operator):
    await stage.apply(CPU, GPU)
    await stage.shows("Ready", "True AllReady")
    first, (uid,) = await stage.scheduler(), await scheduler_uids(stage)
    (name,) = [p["metadata"]["name"] for p in await stage.list("pods") if p["metadata"]["uid"] == uid]
    await stage.delete("pods", name)

    async def is_asked() -> bool:
        second = stage.kubelet.schedulers.get("demo")
        return second is not None and second is not first and "gpu" in second.desired.get("pools", {})

    await stage.becomes(is_asked, wanted=True)
    assert (await stage.scheduler()).desired["pools"]["gpu"]["listen"] == {"ucxx": 8788}


async def test_an_older_preload_is_told_of_and_its_other_pools_go_on(stage: Stage, operator: Operator):
    await stage.apply(CPU)
    await stage.shows("Ready", "True AllReady")
    scheduler = await stage.scheduler()
    del scheduler.features["listen"]
    await scheduler.say()
    await stage.apply(a_pool("cpu", replicas=2), GPU)
    assert "its preload is older than that" in await stage.shows("Degraded", "True SchedulerNotListening")
    await stage.becomes(lambda: stage.names(pool="cpu"), ["demo-cpu-worker-0", "demo-cpu-worker-1"])
    assert await stage.names(pool="gpu") == []


async def test_while_a_scheduler_of_tls_waits_for_its_rollout_nothing_is_opened_beside_it(
    stage: Stage, operator: Operator
):
    """UCX is not encrypted: an edit away from tls opens it once the scheduler that speaks tls has gone."""
    await stage.apply(CPU, {key: value for key, value in GPU.items() if key != "protocol"}, protocol="tls")
    await stage.shows("Ready", "True AllReady")
    scheduler, pods = await stage.scheduler(), await stage.names()
    scheduler.tasks = 1
    await scheduler.say()
    await stage.apply(CPU | {"accepts": "annotated"}, GPU, protocol="tcp")
    await stage.shows("SchedulerReady", "SchedulerWaitsForRollout")

    async def told() -> str:
        return str(scheduler.desired["pools"]["cpu"]["accepts"])

    await stage.becomes(told, "annotated", "the rest of the edit has reached the scheduler")
    assert "listen" not in scheduler.desired["pools"]["gpu"]
    assert await stage.names() == pods
