"""Where the mirror's kinds are missing, the stock operator's, coming or going: on an API server of the tests' own."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask_kubernetes
import pytest
from dask_kubernetes.operator import KubeCluster

from gpudask.clients.errors import ApiError
from gpudask.clients.reflector import Reflector
from gpudask.mirror.objects import KINDS
from gpudask.clients.reflector import Caches
from gpudask.mirror.definitions import DefinitionsWatcher
from tests.builders import a_pool
from tests.conftest import CRD, ROOT
from tests.eventually import eventually as soon
from tests.kubectl import Kubectl
from tests.reconcile.in_memory import becomes
from tests.reconcile.stage import Stage, defined, operating, staged_alone, stays
from tests.mirror.stock import in_daemon

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


class Discovery:
    """Answers with what there is of the mirror's group; None: nothing."""

    def __init__(self) -> None:
        self.kinds: list[Json] | None = None
        self.asked = 0

    async def request(self, _verb: str, path: str) -> Json:
        self.asked += 1
        if self.kinds is None:
            raise ApiError(404, "NotFound", "no such group", path)
        return {"resources": self.kinds}


async def test_definitions_are_looked_for_until_they_are_there_and_then_when_a_watch_is_refused():
    discovery, told, refused = Discovery(), list[str](), list[Callable[[], None]]()

    def make(_kind: str, on_refusal: Callable[[], None]) -> Caches:
        refused.append(on_refusal)
        return Caches([])

    def watch(reflector: Reflector[Any]) -> asyncio.Task[None]:
        raise AssertionError(f"there is nothing to watch, {reflector.path} neither")

    def tell() -> None:
        told.append(follower.definitions.refusal)

    follower = DefinitionsWatcher(
        discovery,  # type: ignore[arg-type]
        make,
        watch,
        tell,
        check_interval_seconds=0.01,
        min_interval_seconds=0.01,
    )
    await follower.check()
    following = asyncio.create_task(follower.run())
    await becomes(lambda: discovery.asked, lambda asked: asked > 3)
    discovery.kinds = [{"name": kind.lower(), "kind": kind, "categories": ["gpudask"]} for kind in KINDS]
    await becomes(lambda: follower.definitions.refusal, "")
    asked = discovery.asked
    await asyncio.sleep(0.1)
    assert discovery.asked == asked, "nobody has doubted them"
    discovery.kinds = None
    refused[0]()
    await becomes(lambda: follower.definitions.refusal, lambda why: "are missing" in why)
    assert [bool(why) for why in told] == [True, False, True]
    following.cancel()


async def test_without_definitions_the_operator_works_and_says_what_to_install(stage: Stage):
    async with operating(replace(stage.settings, mirror=True)):
        await stage.apply(a_pool(replicas=1), name="bare")
        await stage.shows("Mirrored", "False MirrorRefused: its definitions are missing: kubectl apply", name="bare")
        await stage.shows("Ready", "True AllReady", name="bare")
    await stage.delete_cluster("bare")


async def test_definitions_are_followed_while_the_operator_runs(stage: Stage, own: Kubectl):
    """They were looked for at the start alone."""
    async with operating(replace(stage.settings, mirror=True), check_interval_seconds=0.5):
        await stage.apply(a_pool(replicas=1), name="late")
        await stage.shows("Mirrored", "False MirrorRefused: its definitions are missing", name="late")
        for _ in range(2):
            own.define(DEFINITIONS)
            await stage.shows("Mirrored", "True Mirrored", name="late")
            soon(lambda: "late" in own("get", "daskclusters", "-o", "name").stdout, "it is mirrored")
            own("delete", "-f", str(DEFINITIONS), "--timeout=60s")
            await stage.shows("Mirrored", "False MirrorRefused: its definitions are missing", name="late")
        await stage.apply(a_pool(replicas=2), name="late")
        await stage.becomes(lambda: stage.names("late"), ["late-cpu-worker-0", "late-cpu-worker-1"])
    await stage.delete_cluster("late")


async def test_what_the_stock_client_would_create_fails_at_once_and_says_what_is_missing(stage: Stage):
    """It does not wait for the objects: whoever waits does so for an hour, which the deadline ends."""
    options = {"name": "new", "namespace": "default", "image": "x", "resource_timeout": 3600}
    with pytest.raises(Exception, match=r"404 Not Found.*/daskclusters"):
        await asyncio.wait_for(in_daemon(lambda: KubeCluster(**options)), 120)


async def test_the_stock_operators_definitions_are_left_alone(stage: Stage, own: Kubectl):
    own.define(STOCK / "daskcluster.yaml")
    async with operating(replace(stage.settings, mirror=True)):
        await stage.apply(a_pool(replicas=1), name="beside")
        await stage.shows("Mirrored", "DaskCluster of kubernetes.dask.org belong to the stock", name="beside")
    assert own("get", "daskclusters", "-o", "name").stdout == ""
    await stage.delete_cluster("beside")
    own("delete", "crd", "daskclusters.kubernetes.dask.org", "--timeout=120s")


async def test_beside_the_stock_operator_nothing_is_mirrored_even_where_our_definitions_replaced_most_of_its(
    stage: Stage, own: Kubectl
):
    """As Argo CD may leave it: the chart cannot look there. The kind that is not ours tells whose the group is."""
    own.define(DEFINITIONS)
    own("delete", "crd", "daskjobs.kubernetes.dask.org", "--timeout=120s")
    own.define(STOCK / "daskjob.yaml")
    async with operating(replace(stage.settings, mirror=True)) as operator:
        await stage.apply(a_pool(replicas=1), name="argo")
        await stage.shows("Mirrored", "DaskJob of kubernetes.dask.org belong to the stock", name="argo")
        assert "DaskJob of kubernetes.dask.org belong to the stock Dask operator" in operator.notes()[0]
    assert own("get", "daskclusters", "-o", "name").stdout == ""
    await stage.delete_cluster("argo")
    own("delete", "-f", str(DEFINITIONS), "--timeout=60s")


async def test_whoever_deletes_the_definitions_deletes_no_cluster(stage: Stage, own: Kubectl):
    own.define(DEFINITIONS)
    async with operating(replace(stage.settings, mirror=True)):
        await stage.apply(a_pool(replicas=1), name="kept")
        await stage.shows("Mirrored", "True Mirrored", name="kept")
        soon(lambda: "kept" in own("get", "daskclusters", "-o", "name").stdout, "it is mirrored")
        own("delete", "crd", "daskclusters.kubernetes.dask.org", "--timeout=120s")

        async def exists() -> str:
            return str((await stage.cluster("kept"))["metadata"]["name"])

        await stays(exists, "kept", 3)
