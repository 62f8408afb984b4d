"""Clusters of the real stock operator are taken over: on an API server of the tests' own, whose nodes are played."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from benchmarks.startup.peer import PeerEnvironment
from gpudask.api import Json
from gpudask.api.addresses import DASHBOARD_PORT
from local.clusters.api_server import ApiServer
from tests.conftest import CRD
from tests.eventually import eventually_async
from tests.kubectl import Kubectl
from tests.mirror.stock import Stock
from tests.mirror.stock_operator import stock_operator
from tests.mirror.test_served import a_cluster, a_group, condition, make, phase, tells, workers
from tests.reconcile.fake_dask import free_address
from tests.reconcile.fake_kubelet import running
from tests.reconcile.stage import Stage, operating, staged_alone, stays

pytestmark = pytest.mark.api
MIRROR = CRD.with_name("mirror.yaml")
SECONDS = 90.0


class OldScheduler:
    """What a Dask scheduler without the preload tells on its dashboard's port."""

    def __init__(self) -> None:
        self.address = free_address()
        self.tasks: int | None = 5
        self.asked = 0

    async def counts(self, _: web.Request) -> web.Response:
        self.asked += 1
        return web.json_response({"tasks": self.tasks, "clients": 1})


@pytest.fixture
async def old() -> AsyncIterator[OldScheduler]:
    scheduler, app = OldScheduler(), web.Application()
    app.router.add_get("/json/counts.json", scheduler.counts)
    runner = web.AppRunner(app)
    await runner.setup()

    async def listens() -> bool:
        try:  # another program may have the port of all addresses for a moment
            await web.TCPSite(runner, scheduler.address, DASHBOARD_PORT).start()
        except OSError:
            scheduler.address = free_address()
            return False
        return True

    await eventually_async(listens, bool, "a free address", seconds=SECONDS)
    yield scheduler
    await runner.cleanup()


@pytest.fixture
async def own(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Stage, Kubectl]]:
    """The stage of an API server with the definitions of the stock operator."""
    server = ApiServer.start(f"tests-takeover-{os.getpid()}")
    try:
        kubectl = Kubectl(str(server.kubectl), server.kubeconfig)
        kubectl.define(CRD, *PeerEnvironment.ensure().crds)
        async with staged_alone(kubectl, monkeypatch) as stage:
            yield stage, kubectl
    finally:
        server.stop()


def put_our_definitions_in_place(kubectl: Kubectl) -> None:
    """As docs/from-dask-kubernetes.md says it."""
    kubectl("replace", "-f", str(MIRROR))
    kubectl.await_served("-f", str(MIRROR))


async def deployments(stage: Stage) -> list[str]:
    return sorted(item["metadata"]["name"] for item in await stage.list("deployments", "apps/v1"))


async def count(stage: Stage) -> int:
    return len(await deployments(stage))


async def finalizers(stock: Stock) -> list[str]:
    found = await stock.get("daskcluster", "demo")
    return list((found or {}).get("metadata", {}).get("finalizers", []))


async def clusters(stage: Stage) -> list[str]:
    return [item["metadata"]["name"] for item in await stage.list("gpudaskclusters", "gpudask.dev/v1alpha1")]


async def play_scheduler(stage: Stage, address: str) -> None:
    """The pod that the Deployment of the scheduler would have."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "demo-scheduler-1", "uid": "r", "controller": True}
    labels = {"dask.org/cluster-name": "demo", "dask.org/component": "scheduler"}
    body: Json = {
        "metadata": {"name": "demo-scheduler-1-x", "labels": labels, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "scheduler", "image": "x"}], "nodeName": "node-1"},
    }
    await stage.create("pods", body)
    await stage.patch("pods", "demo-scheduler-1-x/status", {"status": running(address)})


async def made_by_the_stock_operator(stage: Stage, stock: Stock, log: Path) -> None:
    """A cluster of two workers, which somebody then scales to three, and a second group."""
    with stock_operator(stage.kubeconfig, stage.namespace, log):
        await make(stock, a_cluster())
        await stage.becomes(lambda: count(stage), 3, "the scheduler and two workers", seconds=SECONDS)
        await make(stock, a_group())
        await stock.patch("daskworkergroup", "demo-default", {"spec": {"worker": {"replicas": 3}}})
        await stage.becomes(lambda: count(stage), 5, "four workers", seconds=SECONDS)


async def test_a_cluster_of_the_stock_operator_goes_on_until_it_is_idle_and_is_then_replaced(
    own: tuple[Stage, Kubectl], old: OldScheduler, tmp_path: Path
):
    stage, kubectl = own
    stock = Stock(stage)
    await made_by_the_stock_operator(stage, stock, tmp_path / "log")
    await stock.limit(2, 4)
    before = await deployments(stage)
    service = await stage.get("services", "demo-scheduler")
    assert service
    await play_scheduler(stage, old.address)
    assert await finalizers(stock), "the stock operator left its finalizer"
    put_our_definitions_in_place(kubectl)
    async with operating(replace(stage.settings, mirror=True), check_interval_seconds=1.0):
        await tells(stock, "TakenOver", "False WorkInProgress")
        assert await finalizers(stock) == [], "it could not be deleted any more"
        await stays(lambda: deployments(stage), before, 1)
        assert await clusters(stage) == []
        assert await phase(stock) in ("Pending", "Running")  # the stock operator writes both, in no order
        assert (await stage.get("services", "demo-scheduler") or {})["metadata"]["uid"] == service["metadata"]["uid"]
        old.tasks = 0
        await stage.becomes(lambda: deployments(stage), [], "they are deleted once it is idle", seconds=SECONDS)
        await tells(stock, "TakenOver", "False PodsTerminating")
        assert await clusters(stage) == [], "its pods are there yet"
        await stage.delete("pods", "demo-scheduler-1-x", gracePeriodSeconds=0)
        await stage.becomes(lambda: clusters(stage), ["demo"], seconds=SECONDS)
        await tells(stock, "Served", "True Served")
        await stage.becomes(lambda: stage.names(pool="more"), workers("more", 1), seconds=SECONDS)
        await stage.becomes(lambda: phase(stock), "Running", seconds=SECONDS)
        overrides = (await stage.cluster())["spec"]["overrides"]
        assert [entry["pool"] for entry in overrides] == ["default"]
        assert (await stage.get("services", "demo-scheduler") or {})["metadata"]["uid"] != service["metadata"]["uid"]
        assert await stock.names("daskworkergroup") == ["demo-default", "demo-more"]


async def test_a_size_that_was_set_and_a_deletion_are_kept(own: tuple[Stage, Kubectl], tmp_path: Path):
    stage, kubectl = own
    stock = Stock(stage)
    await made_by_the_stock_operator(stage, stock, tmp_path / "log")
    put_our_definitions_in_place(kubectl)
    async with operating(replace(stage.settings, mirror=True), check_interval_seconds=1.0):
        await tells(stock, "TakenOver", "False SchedulerUnreachable")
        await stock.patch("daskcluster", "demo", {"metadata": {"annotations": {"gpudask.dev/take-over": "now"}}})
        await stage.becomes(lambda: deployments(stage), [], "somebody confirmed it", seconds=SECONDS)
        await stage.becomes(lambda: stage.names(pool="default"), workers("default", 3), seconds=SECONDS)
        await stock.delete("daskcluster", "demo")
        await stage.becomes(lambda: stock.names("daskcluster"), [], seconds=SECONDS)


async def test_while_the_stock_operator_runs_all_is_left_to_it_and_a_deletion_goes_on(
    own: tuple[Stage, Kubectl], tmp_path: Path
):
    stage, kubectl = own
    stock = Stock(stage)
    await made_by_the_stock_operator(stage, stock, tmp_path / "log")
    before = await deployments(stage)
    put_our_definitions_in_place(kubectl)
    with stock_operator(stage.kubeconfig, stage.namespace, tmp_path / "log"):
        async with operating(replace(stage.settings, mirror=True), check_interval_seconds=1.0):
            await tells(stock, "TakenOver", "False MirrorRefused: another operator handles it")
            assert await finalizers(stock), "it has put it back"
            assert await deployments(stage) == before
    async with operating(replace(stage.settings, mirror=True), check_interval_seconds=1.0):
        await stock.delete("daskcluster", "demo")
        await stage.becomes(lambda: stock.names("daskcluster"), [], "it is gone without its finalizer", seconds=SECONDS)
        assert await condition(stock, "Served") == "none"
