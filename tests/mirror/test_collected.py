"""Kubernetes' own garbage collector deletes what serves a DaskCluster or a DaskJob, and a DaskCluster with that."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from gpudask.api import Json
from local.clusters.api_server import ApiServer
from tests.conftest import CRD, JOB_CRD
from tests.hostile.platform import controllers
from tests.kubectl import Kubectl
from tests.mirror.stock import Stock
from tests.mirror.test_jobs import a_manifest, becomes, status
from tests.mirror.test_served import a_cluster, a_group, condition, make, nothing_left, phase, tells
from tests.reconcile.jobs import LONG
from tests.reconcile.stage import Stage, eventually, operating, staged_alone

pytestmark = pytest.mark.api


async def an_owner(stage: Stage) -> Json:
    """The reference to an object that stands for the workflow which makes a DaskCluster."""
    flow = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "flow"}}
    made = await stage.api.request("POST", f"/api/v1/namespaces/{stage.namespace}/configmaps", body=flow)
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": "flow", "uid": made["metadata"]["uid"]}


async def test_a_daskjob_that_is_made_again_runs_once_the_collector_took_the_earlier_one(
    monkeypatch: pytest.MonkeyPatch,
):
    server = ApiServer.start(f"tests-again-{os.getpid()}")
    try:
        own = Kubectl(str(server.kubectl), server.kubeconfig)
        for definition in (CRD, JOB_CRD, CRD.with_name("mirror.yaml")):
            own.define(definition)
        server.processes.ensure(controllers(server))
        async with staged_alone(own, monkeypatch) as stage, operating(replace(stage.settings, mirror=True)):
            stock = Stock(stage)
            await make(stock, a_manifest())
            await becomes(stock, "Running")
            await stock.delete("daskjob", "sums")
            await make(stock, a_manifest())
            await eventually(
                lambda: status(stock),
                lambda seen: len(stage.kubelet.runs) == 2 and seen.get("jobStatus") == "Running",
                "it runs in its turn",
                seconds=LONG,
            )
            assert "conditions" not in await status(stock)
            path = f"/apis/events.k8s.io/v1/namespaces/{stage.namespace}/events"
            events = (await stage.api.request("GET", path))["items"]
            told = {event["reason"] for event in events if event["regarding"]["kind"] == "DaskJob"}
            assert told <= {"CarriedOver", "CommandReplaced"}, "nothing was wrong meanwhile"
    finally:
        server.processes.stop(["kube-controller-manager"], patience_seconds=0.5)
        server.stop()


async def test_either_takes_all_along_while_no_operator_runs(monkeypatch: pytest.MonkeyPatch):
    server = ApiServer.start(f"tests-served-{os.getpid()}")
    try:
        own = Kubectl(str(server.kubectl), server.kubeconfig)
        own.define(CRD, CRD.with_name("mirror.yaml"))
        server.processes.ensure(controllers(server))
        async with staged_alone(own, monkeypatch) as stage:
            stock = Stock(stage)
            for first in ("DaskCluster", "GpuDaskCluster", "its owner"):
                body = a_cluster()
                if first == "its owner":
                    body["metadata"]["ownerReferences"] = [await an_owner(stage)]
                async with operating(replace(stage.settings, mirror=True)):
                    await make(stock, body)
                    await make(stock, a_group())
                    await stage.becomes(lambda: phase(stock), "Running")
                    await tells(stock, "Served", "True", "demo-more", "daskworkergroup")
                if first == "DaskCluster":
                    await stock.delete("daskcluster", "demo")
                elif first == "its owner":
                    await stage.api.request("DELETE", f"/api/v1/namespaces/{stage.namespace}/configmaps/flow")
                else:
                    await stage.delete_cluster()
                await nothing_left(stage, stock)
                await stage.becomes(lambda: stock.names("daskworkergroup"), [], f"{first} first")
                assert await condition(stock, "Served") == "none"
    finally:
        server.processes.stop(["kube-controller-manager"], patience_seconds=0.5)
        server.stop()
