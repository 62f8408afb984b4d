"""Worker groups that follow demand by their annotation: on a real API server with played nodes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gpudask.api import Json
from gpudask.api.limits import Limits
from gpudask.reconcile.operator import Operator
from tests.kubectl import Kubectl
from tests.mirror.stock import Stock
from tests.mirror.test_served import GPU, a_cluster, a_group, make, phase, tells, workers
from tests.reconcile.stage import Stage, operating, stays

pytestmark = pytest.mark.api
AUTOSCALE = "gpudask.dev/autoscale"


def a_gpu_group(limits: str | None = "0..2", **options: Any) -> Json:
    body = a_group("demo-gpu", **{"resources": GPU, "worker_command": "dask-cuda-worker"} | options)
    return body if limits is None else body | {"metadata": {"name": "demo-gpu", "annotations": {AUTOSCALE: limits}}}


async def annotate(stock: Stock, limits: str | None) -> None:
    await stock.patch("daskworkergroup", "demo-gpu", {"metadata": {"annotations": {AUTOSCALE: limits}}})


async def overrides(stage: Stage) -> Any:
    entries = (await stage.cluster())["spec"].get("overrides", [])
    return {entry["pool"]: {key: entry[key] for key in ("replicas", "min", "max") if key in entry} for entry in entries}


async def test_a_gpu_group_with_limits_follows_gpu_demand_alone_and_shows_no_size(
    stage: Stage, mirroring: Operator, stock: Stock
):
    await make(stock, a_cluster(n_workers=1))
    await make(stock, a_gpu_group())
    await stage.becomes(lambda: phase(stock), "Running")
    await tells(stock, "Served", "True Served", "demo-gpu", "daskworkergroup")
    await tells(stock, "CarriedOver", "GPU demand", "demo-gpu", "daskworkergroup")
    await stage.becomes(lambda: stock.size("demo-gpu"), None, "its size is nobody's")
    task = await stage.scheduler()
    await task.want(50)
    await stays(lambda: stage.names(pool="gpu"), [], 1)
    await task.want(1, GPU=1)
    await stage.becomes(lambda: stage.names(pool="gpu"), workers("gpu", 1))
    await task.want(9, GPU=1)
    await stage.becomes(lambda: stage.names(pool="gpu"), workers("gpu", 2), "at most two")

    async def ready() -> Any:
        return ((await stock.get("daskworkergroup", "demo-gpu")) or {}).get("status", {}).get("replicas")

    await stage.becomes(ready, 2)
    assert await overrides(stage) == {}
    assert await stock.size("demo-gpu") is None


async def test_a_group_of_fixed_size_gets_limits_a_size_by_kubectl_and_both_taken_away(
    stage: Stage, mirroring: Operator, stock: Stock, kubectl: Kubectl
):
    here = replace(kubectl, namespace=stage.namespace, kubeconfig=stage.kubeconfig)
    await make(stock, a_cluster(n_workers=0))
    await make(stock, a_gpu_group(None))
    await stage.becomes(lambda: stage.names(pool="gpu"), workers("gpu", 1))
    await asyncio.to_thread(here, "scale", "daskworkergroup", "demo-gpu", "--replicas=3")
    await stage.becomes(lambda: stage.names(pool="gpu"), workers("gpu", 3))
    await annotate(stock, "0..4")
    await stage.becomes(lambda: stock.size("demo-gpu"), None, "what was set before has ended")
    assert await overrides(stage) == {}
    task = await stage.scheduler()
    await task.want(8, GPU=1)
    await stage.becomes(lambda: stage.names(pool="gpu"), workers("gpu", 4))
    await asyncio.to_thread(here, "scale", "daskworkergroup", "demo-gpu", "--replicas=5")
    await stage.becomes(lambda: stage.names(pool="gpu"), workers("gpu", 5), "a size that is set holds")
    assert await overrides(stage) == {"gpu": {"replicas": 5}}
    await stays(lambda: stock.size("demo-gpu"), 5, 1)
    await stock.patch("daskworkergroup", "demo-gpu", {"spec": {"worker": {"replicas": None}}})
    await stage.becomes(lambda: overrides(stage), {}, "demand again")
    await stage.becomes(lambda: stage.names(pool="gpu"), workers("gpu", 4), "within its limits")
    await annotate(stock, None)
    await stage.becomes(lambda: overrides(stage), {"gpu": {"replicas": 4}}, "it keeps the size that it has")
    await stage.becomes(lambda: stock.size("demo-gpu"), 4)

    async def limits() -> Any:
        return next(pool for pool in (await stage.cluster())["spec"]["pools"] if pool["name"] == "gpu").get("autoscale")

    await stage.becomes(limits, None)
    await task.want(0)
    await stays(lambda: stage.names(pool="gpu"), workers("gpu", 4), 1)


async def test_a_bad_annotation_is_told_by_its_name_and_holds_nothing_up(
    stage: Stage, mirroring: Operator, stock: Stock
):
    await make(stock, a_gpu_group("many"))
    await make(stock, a_cluster(n_workers=1))
    words = f"False Invalid: metadata.annotations[{AUTOSCALE}]: 'many' is no limits: write pods at least and at most"
    await tells(stock, "Served", words, "demo-gpu", "daskworkergroup")
    await stage.becomes(lambda: stage.names(pool="default"), workers("default", 1))
    await annotate(stock, "1..2")
    await stage.becomes(lambda: stage.names(pool="gpu"), workers("gpu", 1))
    await tells(stock, "Served", "True Served", "demo-gpu", "daskworkergroup")
    await annotate(stock, "2..1")
    await tells(stock, "Served", "False Invalid", "demo-gpu", "daskworkergroup")
    await stays(lambda: stage.names(pool="gpu"), workers("gpu", 1), 1)
    assert await overrides(stage) == {}


async def test_an_autoscaler_limits_the_default_group_and_the_annotation_the_gpu_group_beside_it(
    stage: Stage, mirroring: Operator, stock: Stock
):
    await stock.limit(1, 2)
    await make(stock, a_cluster(n_workers=0))
    await make(stock, a_gpu_group("0..3"))
    await stage.becomes(lambda: stage.names(pool="default"), workers("default", 1))
    task = await stage.scheduler()
    await task.want(9, GPU=1)
    await stage.becomes(lambda: stage.names(pool="gpu"), workers("gpu", 3))
    assert await stage.names(pool="default") == workers("default", 1), "GPU demand is not its"
    await stock.delete("daskautoscaler", "demo")
    await stage.becomes(lambda: overrides(stage), {"default": {"replicas": 1}}, "the group beside it goes on")
    assert await stage.names(pool="gpu") == workers("gpu", 3)


async def test_a_daskcluster_with_limits_needs_no_autoscaler(stage: Stage, mirroring: Operator, stock: Stock):
    body = a_cluster(n_workers=2, resources=GPU, worker_command="dask-cuda-worker")
    body["metadata"]["annotations"] = {AUTOSCALE: "0..2"}
    await make(stock, body)
    await stage.becomes(lambda: phase(stock), "Running")
    assert await stage.names(pool="default") == []
    task = await stage.scheduler()
    await task.want(9, GPU=1)
    await stage.becomes(lambda: stage.names(pool="default"), workers("default", 2))

    async def size() -> Any:
        return ((await stock.get("daskcluster", "demo")) or {})["spec"]["worker"].get("replicas")

    await stage.becomes(size, 2, "a DaskCluster shows the size that it has: the stock client reads it")
    assert await overrides(stage) == {}, "which nobody set"


async def test_limits_above_those_of_the_installation_are_told_and_lower_ones_go_on(
    stage: Stage, stock: Stock, definitions: None
):
    settings = replace(stage.settings, mirror=True, limits=Limits(gpus_per_cluster=2))
    async with operating(settings):
        await make(stock, a_cluster(n_workers=1))
        await make(stock, a_gpu_group("0..3", resources={"limits": {"nvidia.com/gpu": 1}}))
        await tells(stock, "Served", "False Invalid: spec.pools: they may grow to 3 GPUs")
        await annotate(stock, "1..2")
        await stage.becomes(lambda: stage.names(pool="gpu"), workers("gpu", 1))
        await stage.becomes(lambda: phase(stock), "Running")
