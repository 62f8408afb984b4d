"""Where the mirror's kinds are missing, the stock operator's, or going: on an API server of the tests' own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import dask_kubernetes
import pytest
from dask_kubernetes.operator import KubeCluster

from tests.builders import a_pool
from tests.conftest import CRD, ROOT
from tests.eventually import eventually as soon
from tests.kubectl import Kubectl
from tests.reconcile.stage import Stage, defined, operating, staged_alone, stays
from tests.reconcile.stock import in_daemon

pytestmark = pytest.mark.api
DEFINITIONS = ROOT / "crds" / "mirror.yaml"
STOCK = Path(dask_kubernetes.__file__).parent / "operator" / "deployment" / "helm" / "dask-kubernetes-operator" / "crds"


@pytest.fixture(scope="module")
def own() -> Iterator[Kubectl]:
    with defined("definitions", CRD) as kubectl:
        yield kubectl


@pytest.fixture
async def stage(own: Kubectl, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    async with staged_alone(own, monkeypatch) as stage:
        yield stage


async def test_without_definitions_the_operator_works_and_says_what_to_install(stage: Stage):
    async with operating(replace(stage.settings, mirror=True)):
        await stage.apply(a_pool(replicas=1), name="bare")
        await stage.shows("Mirrored", "False MirrorRefused: its definitions are missing: kubectl apply", name="bare")
        await stage.shows("Ready", "True AllReady", name="bare")
    await stage.delete_cluster("bare")


async def test_what_the_stock_client_would_create_fails_at_once_and_says_what_is_missing(stage: Stage):
    began = time.monotonic()
    with pytest.raises(Exception, match=r"404 Not Found.*/daskclusters"):
        await asyncio.wait_for(in_daemon(lambda: KubeCluster(name="new", namespace="default", image="x")), 30)
    assert time.monotonic() - began < 10


async def test_the_stock_operators_definitions_are_left_alone(stage: Stage, own: Kubectl):
    own.define(STOCK / "daskcluster.yaml")
    async with operating(replace(stage.settings, mirror=True)):
        await stage.apply(a_pool(replicas=1), name="beside")
        await stage.shows("Mirrored", "DaskCluster of kubernetes.dask.org belong to the stock", name="beside")
    assert own("get", "daskclusters", "-o", "name").stdout == ""
    await stage.delete_cluster("beside")
    own("delete", "crd", "daskclusters.kubernetes.dask.org", "--timeout=30s")


async def test_whoever_deletes_the_definitions_deletes_no_cluster(stage: Stage, own: Kubectl):
    own.define(DEFINITIONS)
    async with operating(replace(stage.settings, mirror=True)):
        await stage.apply(a_pool(replicas=1), name="kept")
        await stage.shows("Mirrored", "True Mirrored", name="kept")
        soon(lambda: "kept" in own("get", "daskclusters", "-o", "name").stdout, "it is mirrored")
        own("delete", "crd", "daskclusters.kubernetes.dask.org", "--timeout=30s")

        async def exists() -> str:
            return str((await stage.cluster("kept"))["metadata"]["name"])

        await stays(exists, "kept", 3)
