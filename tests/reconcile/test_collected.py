"""Kubernetes' own garbage collector deletes what the clusters of a namespace share, with the last of them."""

from __future__ import annotations

import os

import pytest

from gpudask.desired import preload
from gpudask.preload import files
from local.clusters.api_server import ApiServer
from tests.builders import a_pool
from tests.conftest import CRD
from tests.hostile.platform import controllers
from tests.kubectl import Kubectl
from tests.reconcile.stage import Stage, operating, staged_alone

pytestmark = pytest.mark.api


async def owners(stage: Stage) -> list[str] | None:
    """The clusters that the preload's ConfigMap names; None: there is none."""
    found = await stage.get("configmaps", preload.name(files()))
    return None if found is None else sorted(item["name"] for item in found["metadata"].get("ownerReferences", ()))


async def ready(stage: Stage, *names: str) -> None:
    for name in names:
        await stage.apply(a_pool(), name=name)
        await stage.shows("Ready", "True AllReady", name=name)


async def test_the_preload_goes_with_the_last_cluster_and_comes_with_the_next(monkeypatch: pytest.MonkeyPatch):
    server = ApiServer.start(f"tests-collected-{os.getpid()}")
    try:
        own = Kubectl(str(server.kubectl), server.kubeconfig)
        own.define(CRD)
        server.processes.ensure(controllers(server))
        async with staged_alone(own, monkeypatch) as stage:
            async with operating(stage.settings):
                await ready(stage, "demo", "other")
                await stage.becomes(lambda: owners(stage), ["demo", "other"])
            await stage.delete_cluster("demo")  # while no operator runs
            await stage.becomes(lambda: owners(stage), ["other"])
            await stage.delete_cluster("other")
            await stage.becomes(lambda: owners(stage), None)
            async with operating(stage.settings):
                await ready(stage, "third")
                await stage.delete_cluster("third")
                await ready(stage, "fourth")
                await stage.becomes(lambda: owners(stage), ["fourth"], "whatever the collector does meanwhile")
    finally:
        server.processes.stop(["kube-controller-manager"], patience_seconds=0.5)
        server.stop()
