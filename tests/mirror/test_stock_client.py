"""The stock Dask client, unchanged, on a cluster of ours, on a real API server with played nodes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from dask_kubernetes.operator import KubeCluster
from dask_kubernetes.operator.kubecluster.discovery import discover

from gpudask.api.resource import Cluster
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from gpudask.planning.actions import Plan
from gpudask.reconcile import reconciler
from gpudask.reconcile.reconciler import Reconciler
from gpudask.reconcile.operator import Operator
from gpudask.settings import Settings
from tests.builders import a_pool
from tests.kubectl import Kubectl
from tests.planning.builders import gpu_pool, scaled
from tests.reconcile.proxy import Proxy
from tests.reconcile.stage import Stage, operating, stays
from tests.mirror.stock import Stock, in_daemon

pytestmark = pytest.mark.api


async def overrides(stage: Stage) -> dict[str, dict[str, Any]]:
    return {entry.pop("pool"): entry for entry in (await stage.cluster())["spec"].get("overrides", [])}


async def set_by(stage: Stage, pool: str) -> str:
    return next(str(row["sizeSetBy"]) for row in (await stage.status())["pools"] if row["name"] == pool)


async def set_where(stage: Stage, pool: str) -> str:
    """The object on which the size was set."""
    return (await set_by(stage, pool)).rpartition(" on ")[2]


async def answer(stage: Stage) -> int:
    """What the API server answers who asks for the cluster."""
    try:
        await stage.cluster()
    except ApiError as error:
        return error.status
    return 200


async def test_a_cluster_is_mirrored_and_says_so(stage: Stage, mirroring: Operator, stock: Stock):
    made = await stage.apply(a_pool(replicas=2), gpu_pool())
    await stage.shows("Mirrored", "True Mirrored")
    await stock.stage.becomes(lambda: stock.names("daskworkergroup"), ["demo-cpu", "demo-default", "demo-gpu"])
    found = await stock.get("daskcluster", "demo")
    assert found
    assert [owner["uid"] for owner in found["metadata"]["ownerReferences"]] == [made["metadata"]["uid"]]
    assert found["metadata"]["labels"]["dask.org/cluster-name"] == "demo"
    assert "finalizers" not in found["metadata"]
    assert (found["spec"]["worker"]["replicas"], found["status"]["phase"]) == (2, "Running")
    assert [await stock.size(f"demo-{pool}") for pool in ("cpu", "default", "gpu")] == [2, 2, None]

    async def ready() -> Any:
        group = await stock.get("daskworkergroup", "demo-default")
        return group and group["status"]["replicas"]

    await stage.becomes(ready, 2)


async def test_the_stock_client_scales_adapts_and_leaves(
    stage: Stage, mirroring: Operator, stock: Stock, scheduler: None
):
    await stage.apply(a_pool(replicas=1), gpu_pool())
    await stage.shows("Mirrored", "True Mirrored")

    await stock.call(lambda cluster: cluster.scale(3))
    await stage.becomes(lambda: stage.names(pool="cpu"), [f"demo-cpu-worker-{n}" for n in range(3)])
    await stage.becomes(lambda: set_by(stage, "cpu"), "kr8s on DaskWorkerGroup demo-default")
    await stage.becomes(lambda: stock.size("demo-cpu"), 3)

    await stock.call(lambda cluster: cluster.scale(2, worker_group="gpu"))
    await stage.becomes(lambda: stage.names(pool="gpu"), [f"demo-gpu-worker-{n}" for n in range(2)])

    await stock.call(lambda cluster: cluster.adapt(minimum=2, maximum=4))
    await stage.becomes(lambda: set_by(stage, "cpu"), "autoscale, limits by kr8s on DaskAutoscaler demo")
    assert "cpu" in await overrides(stage)

    await stock.call(lambda cluster: cluster.adapt(minimum=1, maximum=2))
    await stage.becomes(lambda: stage.names(pool="cpu"), ["demo-cpu-worker-0", "demo-cpu-worker-1"])

    await stock.call(lambda cluster: cluster.scale(2))
    await stage.becomes(lambda: stock.names("daskautoscaler"), [])

    async def fixed() -> Any:
        return (await overrides(stage))["cpu"].get("replicas")

    await stage.becomes(fixed, 2)
    await stays(lambda: stock.names("daskcluster"), ["demo"], 1)


async def test_a_size_that_is_set_while_a_pass_takes_in_another_change_counts(
    stage: Stage, mirroring: Operator, stock: Stock, monkeypatch: pytest.MonkeyPatch
):
    await stage.apply(scaled("cpu"))
    await stage.shows("Mirrored", "True Mirrored")
    await stock.limit(1, 2)
    await stage.becomes(lambda: stage.names(pool="cpu"), ["demo-cpu-worker-0"])
    execute, meanwhile = Reconciler._execute_actions, []

    async def slowly(self: Reconciler, cluster: Cluster, planned: Plan) -> None:
        given_up = any((override.by or "").startswith("deleting") for override in cluster.spec.overrides)
        if given_up and not meanwhile:  # the second request of the stock client's scale(2), and the watch that tells it
            group = f"{stock._path}/daskworkergroups/demo-default"
            two = {"spec": {"worker": {"replicas": 2}}}
            kind = "application/merge-patch+json"
            meanwhile.append(await self._context.api.request("PATCH", group, body=two, content_type=kind))
            await asyncio.sleep(0.5)
        await execute(self, cluster, planned)

    monkeypatch.setattr(Reconciler, "_execute_actions", slowly)
    await stock.delete("daskautoscaler", "demo")
    await stage.becomes(lambda: stage.names(pool="cpu"), ["demo-cpu-worker-0", "demo-cpu-worker-1"])
    await stage.becomes(lambda: stock.size("demo-cpu"), 2)
    assert meanwhile


async def test_limits_that_are_taken_back_before_they_were_confirmed_are_gone(
    stage: Stage, mirroring: Operator, stock: Stock, monkeypatch: pytest.MonkeyPatch
):
    await stage.apply(scaled("cpu"))
    await stage.shows("Mirrored", "True Mirrored")
    merge, deleted = Kubernetes.merge, []

    async def late(self: Kubernetes, body: dict[str, Any], **words: Any) -> Any:
        if body["kind"] == "DaskAutoscaler" and not deleted:
            deleted.append(await self.request("DELETE", f"{stock._path}/daskautoscalers/demo"))
        return await merge(self, body, **words)

    monkeypatch.setattr(Kubernetes, "merge", late)
    await stock.limit(1, 2)

    async def kept() -> Any:
        return (await overrides(stage)).get("cpu", {}).get("replicas")

    await stage.becomes(kept, 1)
    assert deleted
    await stays(lambda: stock.names("daskautoscaler"), [], 1)


async def test_the_listing_names_it_and_close_with_shutdown_deletes_it(
    stage: Stage, mirroring: Operator, stock: Stock, scheduler: None
):
    await stage.apply(a_pool(replicas=1))
    await stage.shows("Mirrored", "True Mirrored")
    assert ("demo", KubeCluster) in [found async for found in discover()]

    await stock.call(lambda cluster: cluster.name, shutdown_on_close=True)

    await stage.becomes(lambda: answer(stage), 404)


@pytest.mark.parametrize("request_that_fails", [("POST", "/daskclusters"), ("DELETE", "/gpudaskclusters/demo")])
async def test_a_deletion_holds_though_the_api_server_fails_meanwhile(
    request_that_fails: tuple[str, str], stage: Stage, stock: Stock, proxy: Proxy, through: Settings
):
    async with operating(replace(through, mirror=True)):
        await stage.apply(a_pool(replicas=1))
        await stage.shows("Mirrored", "True Mirrored")
        await stage.becomes(lambda: stock.names("daskcluster"), ["demo"], "the write may take longer than a pass waits")
        proxy.faults = [(*request_that_fails, 503), (*request_that_fails, 500)]
        await stock.delete("daskcluster", "demo")
        await stage.becomes(lambda: answer(stage), 404)
    assert proxy.faults == []
    assert await stock.names("daskcluster") == [], "it was not made again in between"


async def test_a_deletion_that_is_refused_is_told_and_tried_again(
    stage: Stage, stock: Stock, proxy: Proxy, through: Settings, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reconciler, "_MIRROR_RETRY_SECONDS", 0.5)
    async with operating(replace(through, mirror=True)):
        await stage.apply(a_pool(replicas=1))
        await stage.shows("Mirrored", "True Mirrored")
        proxy.faults = [("DELETE", "/gpudaskclusters/demo", 403)] * 1000
        await stock.delete("daskcluster", "demo")
        await stage.shows("Mirrored", "False MirrorRefused: DELETE /apis/gpudask.dev/v1alpha1")
        assert await stock.names("daskcluster") == []
        proxy.faults = []
        await stage.becomes(lambda: answer(stage), 404)


async def test_the_size_that_a_deleted_autoscaler_leaves_is_kept_though_the_api_server_fails_meanwhile(
    stage: Stage, stock: Stock, proxy: Proxy, through: Settings
):
    async with operating(replace(through, mirror=True)):
        await stage.apply(scaled("cpu"), overrides=[{"pool": "cpu", "min": 2, "max": 3, "by": "alice"}])
        await stage.becomes(lambda: stock.names("daskautoscaler"), ["demo"])
        await stage.becomes(lambda: stage.names(pool="cpu"), ["demo-cpu-worker-0", "demo-cpu-worker-1"])
        await stage.shows("Ready", "True AllReady")
        proxy.faults = [("PATCH", "/gpudaskclusters/demo", 503)] * 2
        await stock.delete("daskautoscaler", "demo")
        await stage.becomes(lambda: set_by(stage, "cpu"), "deleting DaskAutoscaler demo")
        assert (await overrides(stage))["cpu"]["replicas"] == 2
    assert proxy.faults == []


async def test_kubectl_scale_wins_over_autoscaling_with_the_size_that_is_there_too(
    stage: Stage, mirroring: Operator, stock: Stock, in_namespace: Kubectl
):
    await stage.apply(a_pool(replicas=1), gpu_pool(idle="1s"))
    await stage.shows("Mirrored", "True Mirrored")

    async def scale(size: int) -> None:
        await asyncio.to_thread(in_namespace, "scale", "daskworkergroup", "demo-gpu", f"--replicas={size}")

    await scale(0)
    await stage.becomes(lambda: set_where(stage, "gpu"), "DaskWorkerGroup demo-gpu")
    task = await stage.scheduler()
    await task.want(1, GPU=1)
    await stage.shows("DemandServable", "False")
    await scale(4)
    await stage.becomes(lambda: stage.names(pool="gpu"), [f"demo-gpu-worker-{n}" for n in range(4)])
    await task.want(0, GPU=1)
    await stays(lambda: stock.size("demo-gpu"), 4, 2)
    assert len(await stage.names(pool="gpu")) == 4


async def test_sizes_set_elsewhere_flow_back_and_nobody_takes_them_for_a_persons_change(
    stage: Stage, mirroring: Operator, stock: Stock
):
    await stage.apply(a_pool(replicas=1), scaled("more"))
    await stage.becomes(lambda: stock.size("demo-cpu"), 1)
    await stage.apply(a_pool(replicas=3), scaled("more"), overrides=[{"pool": "more", "replicas": 2, "by": "alice"}])
    await stage.becomes(lambda: stock.size("demo-cpu"), 3)
    await stage.becomes(lambda: stock.size("demo-more"), 2)
    await stage.apply(scaled(least=1), scaled("more"))
    await stage.becomes(lambda: stock.size("demo-cpu"), None)
    await stage.becomes(lambda: stock.size("demo-more"), None)
    await stays(lambda: overrides(stage), {}, 1)


async def test_a_pool_that_goes_takes_its_group_along(stage: Stage, mirroring: Operator, stock: Stock):
    await stage.apply(a_pool(replicas=1), gpu_pool())
    await stage.becomes(lambda: stock.size("demo-gpu"), None)
    await stage.apply(a_pool(replicas=1))
    await stage.becomes(lambda: stock.names("daskworkergroup"), ["demo-cpu", "demo-default"])


async def test_what_people_do_to_the_mirror_while_the_operator_is_away_counts(
    stage: Stage, stock: Stock, definitions: None
):
    settings = replace(stage.settings, mirror=True)
    async with operating(settings):
        await stage.apply(a_pool(replicas=1), scaled("more"))
        await stage.becomes(lambda: stock.names("daskworkergroup"), ["demo-cpu", "demo-default", "demo-more"])
    await stock.patch("daskworkergroup", "demo-cpu", {"spec": {"worker": {"replicas": 3}}})
    await stock.delete("daskworkergroup", "demo-more")
    async with operating(settings):
        await stage.becomes(lambda: stock.size("demo-default"), 3)
        await stage.becomes(lambda: stock.names("daskworkergroup"), ["demo-cpu", "demo-default", "demo-more"])
    assert (await overrides(stage))["cpu"]["replicas"] == 3


async def test_a_mirror_that_vanished_while_the_operator_was_away_is_made_again(
    stage: Stage, stock: Stock, definitions: None
):
    settings = replace(stage.settings, mirror=True)
    async with operating(settings):
        await stage.apply(a_pool(replicas=1))
        await stage.shows("Mirrored", "True Mirrored")
    await stock.delete("daskcluster", "demo")
    async with operating(settings):
        await stage.becomes(lambda: stock.names("daskcluster"), ["demo"])
    await stage.cluster()


async def test_with_the_mirror_off_nobody_serves_what_the_stock_client_makes_and_it_says_so(
    stage: Stage, operator: Operator, stock: Stock
):
    def make() -> None:
        KubeCluster(name="new", namespace=stage.namespace, image="x", quiet=True, resource_timeout=2)

    with pytest.raises(TimeoutError, match="is the Dask Operator running"):
        await in_daemon(make)
    assert await stock.names("daskcluster") == []


async def test_a_worker_group_is_neither_added_nor_taken_away_by_the_stock_client(
    stage: Stage, mirroring: Operator, stock: Stock, scheduler: None
):
    await stage.apply(a_pool(replicas=1), gpu_pool())
    await stage.shows("Mirrored", "True Mirrored")

    await stock.call(lambda cluster: cluster.add_worker_group("more", 1, image="x"))

    async def told() -> str:
        found = await stock.get("daskworkergroup", "demo-more")
        conditions = ((found or {}).get("status") or {}).get("conditions") or [{}]
        return str(conditions[0].get("message"))

    said = "spec.cluster: demo is a GpuDaskCluster of its own: add a pool to its spec.pools instead"
    await stage.becomes(told, said)
    assert [pool["name"] for pool in (await stage.cluster())["spec"]["pools"]] == ["cpu", "gpu"]

    before = (await stock.get("daskworkergroup", "demo-gpu"))["metadata"]["uid"]
    await stock.call(lambda cluster: cluster.delete_worker_group("gpu"))

    async def comes_back() -> str:
        found = await stock.get("daskworkergroup", "demo-gpu")
        return "another" if found and found["metadata"]["uid"] != before else "not yet"

    await stage.becomes(comes_back, "another")


async def test_from_name_of_a_suspended_cluster_waits_until_it_is_resumed(
    stage: Stage, mirroring: Operator, stock: Stock, scheduler: None
):
    await stage.apply(a_pool(replicas=1), suspend=True)

    async def phase() -> Any:
        found = await stock.get("daskcluster", "demo")
        return found and found["status"]["phase"]

    await stage.becomes(lambda: _differs(phase), wanted=True, what="it is mirrored as suspended")
    connecting = asyncio.ensure_future(stock.call(lambda cluster: cluster.name))

    async def connected() -> bool:
        return connecting.done()

    await stays(connected, False, 3)  # noqa: FBT003 - what it stays
    await stage.apply(a_pool(replicas=1), suspend=False)
    assert await connecting == "demo"


async def _differs(phase: Any) -> bool:
    return (await phase()) not in (None, "Running")


async def test_without_the_switch_there_is_no_mirror(stage: Stage, operator: Operator, stock: Stock):
    await stage.apply(a_pool(replicas=1))
    await stage.shows("Ready", "True AllReady")
    assert await stock.names("daskcluster") == []
    assert "Mirrored" not in {row["type"] for row in (await stage.status())["conditions"]}


async def test_an_object_that_another_operator_handles_is_left_alone(stage: Stage, mirroring: Operator, stock: Stock):
    await stage.apply(a_pool(replicas=1))
    await stage.becomes(lambda: stock.size("demo-cpu"), 1)
    mark = {"metadata": {"annotations": {"kopf.zalando.org/last-handled-configuration": "x"}}}
    await stock.patch("daskcluster", "demo", mark)
    await stage.shows("Mirrored", "False MirrorRefused: DaskCluster demo is handled by another operator")
    await stage.apply(a_pool(replicas=2))
    await stage.shows("Ready", "True AllReady")
    assert await stock.size("demo-cpu") == 1
