"""Fake workers register with their fake scheduler, whichever of the two runs first."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.testbed.schedulers import FakeScheduler
from benchmarks.testbed.watch import ADDRESS, ClusterPods, PodWatch
from benchmarks.testbed.pods import SeenPods
from gpudask.api.resource import (
    ANNOTATION_DASK_NAME,
    LABEL_CLUSTER,
    LABEL_DASK_CLUSTER,
    LABEL_DASK_COMPONENT,
    LABEL_POOL,
)
from gpudask.clients.kubernetes import Kubernetes
from tests.kubectl import Kubectl

SCHEDULER = {"name": "demo-scheduler", "labels": {LABEL_CLUSTER: "demo"}, "annotations": {ADDRESS: "127.1.0.1"}}
WORKER = {
    "name": "demo-cpu-worker-0",
    "labels": {LABEL_CLUSTER: "demo", LABEL_POOL: "cpu"},
    "annotations": {ANNOTATION_DASK_NAME: "demo-cpu-worker-0-abcde"},
}


@pytest.mark.parametrize("order", [(SCHEDULER, WORKER), (WORKER, SCHEDULER)], ids=["it first", "the worker first"])
def test_a_worker_registers_once(order: tuple[Any, ...]):
    registered: list[tuple[str, str]] = []
    scheduler = SimpleNamespace(register=lambda name, pool: registered.append((name, pool)))
    schedulers: Any = SimpleNamespace(by_address={"127.1.0.1": scheduler})
    pods = ClusterPods(schedulers)
    for metadata in (*order, *order):  # a watch may tell of a pod more than once
        pods.see({"type": "MODIFIED", "object": {"metadata": metadata, "status": {"phase": "Running"}}})
    assert registered == [("demo-cpu-worker-0-abcde", "cpu")]


async def test_a_worker_leaves_with_its_pod_and_its_task_waits_again():
    scheduler = FakeScheduler("127.1.0.1")
    scheduler.want(1, seconds_a_task=1.0, GPU=1)

    async def said() -> tuple[int, int, int]:
        answer = await scheduler.demand("", 0.0)
        return len(answer["workers"]), answer["demand"][0]["unrunnable"], answer["demand"][0]["processing"]

    scheduler.register("demo-gpu-worker-0", "gpu")
    assert await said() == (1, 0, 1)
    scheduler.leave("demo-gpu-worker-0")
    assert await said() == (0, 1, 0)
    scheduler.leave("demo-gpu-worker-0")  # told of twice
    assert await said() == (0, 1, 0)


def test_a_pod_that_ends_takes_its_worker_along():
    left: list[str] = []
    scheduler = SimpleNamespace(register=lambda *_: None, leave=left.append)
    pods = ClusterPods(cast("Any", SimpleNamespace(by_address={"127.1.0.1": scheduler})))
    for metadata in (SCHEDULER, WORKER):
        pods.see({"type": "MODIFIED", "object": {"metadata": metadata, "status": {"phase": "Running"}}})
    for _ in range(2):
        pods.see({"type": "DELETED", "object": {"metadata": WORKER, "status": {"phase": "Running"}}})
    assert left == ["demo-cpu-worker-0-abcde"]


def test_what_a_new_list_lacks_is_gone():
    pods = SeenPods()
    for uid in ("stays", "goes"):
        pods.see({"type": "ADDED", "object": {"metadata": {"uid": uid, "name": uid}}}, 1.0)
    pods.only(["stays"], 2.0)
    pods.only(["stays"], 3.0)
    assert {pod.name: pod.gone for pod in pods.all()} == {"stays": 0.0, "goes": 2.0}


@pytest.mark.api
async def test_a_watch_tells_of_a_clusters_workers_until_they_are_gone(in_namespace: Kubectl):
    namespace = in_namespace.namespace
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}
    in_namespace("apply", "-f", "-", stdin=json.dumps(account))
    api = await Kubernetes.connect(str(in_namespace.kubeconfig))
    watch = PodWatch(api, namespace)
    running = asyncio.create_task(watch.run())
    try:
        async with asyncio.timeout(120):
            await watch.open.wait()
            for name, component, pool in (("s", "scheduler", ""), ("w", "worker", "gpu")):
                labels = {LABEL_DASK_CLUSTER: "demo", LABEL_DASK_COMPONENT: component, LABEL_POOL: pool}
                spec = {"containers": [{"name": "dask", "image": "any"}]}
                meta = {"name": name, "namespace": namespace, "labels": labels}
                await api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
            await watch.until(lambda: len(watch.left("demo")) == 2)
            (worker,) = watch.workers("demo")
            assert (worker.name, worker.pool, worker.gone) == ("w", "gpu", 0.0)
            in_namespace("delete", "pod", "w", "--grace-period=0", "--force")
            await watch.until(lambda: worker.gone)
            assert [pod.name for pod in watch.left("demo")] == ["s"]
            assert watch.workers("demo") == [worker]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await api.close()
