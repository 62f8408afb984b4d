"""DaskClusters that people and the stock client make are served: on a real API server with played nodes."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from dask_kubernetes.operator import KubeCluster
from dask_kubernetes.operator.kubecluster.kubecluster import make_cluster_spec, make_worker_spec

from gpudask.api import Json
from gpudask.reconcile.operator import Operator
from gpudask.settings import Settings
from tests.builders import a_pool
from tests.eventually import at_rest_async
from tests.mirror.stock import Stock, in_daemon
from tests.reconcile.proxy import Proxy
from tests.reconcile.stage import Stage, operating, stays

pytestmark = pytest.mark.api
GPU = {"limits": {"nvidia.com/gpu": 1}}


def a_cluster(name: str = "demo", **options: Any) -> Json:
    """A DaskCluster as the stock client makes it."""
    return copy.deepcopy(make_cluster_spec(name, **{"image": "x", "n_workers": 2, **options}))


def a_group(name: str = "demo-more", cluster: str = "demo", **options: Any) -> Json:
    """A DaskWorkerGroup as the stock client makes it."""
    worker = copy.deepcopy(make_worker_spec(**{"image": "x", "n_workers": 1, **options}))
    return {
        "apiVersion": "kubernetes.dask.org/v1",
        "kind": "DaskWorkerGroup",
        "metadata": {"name": name},
        "spec": {"cluster": cluster, "worker": worker},
    }


async def make(stock: Stock, body: Json) -> Json:
    path = f"/apis/kubernetes.dask.org/v1/namespaces/{stock.stage.namespace}/{body['kind'].lower()}s"
    return await stock.stage.api.request("POST", path, body=body)


async def phase(stock: Stock, name: str = "demo") -> Any:
    found = await stock.get("daskcluster", name)
    return found and found.get("status", {}).get("phase")


async def condition(stock: Stock, kind: str, name: str = "demo", of: str = "daskcluster") -> str:
    found = await stock.get(of, name)
    conditions = ((found or {}).get("status") or {}).get("conditions") or []
    return next((f"{c['status']} {c['reason']}: {c['message']}" for c in conditions if c["type"] == kind), "none")


async def tells(stock: Stock, kind: str, words: str, name: str = "demo", of: str = "daskcluster") -> None:
    async def told() -> str:
        found = await condition(stock, kind, name, of)
        return words if words in found else found

    await stock.stage.becomes(told, words, f"{of} {name} tells")


def workers(pool: str, count: int) -> list[str]:
    return [f"demo-{pool}-worker-{n}" for n in range(count)]


async def nothing_left(stage: Stage, stock: Stock) -> None:
    await stage.becomes(lambda: stock.names("daskcluster"), [])

    async def clusters() -> list[str]:
        return [item["metadata"]["name"] for item in await stage.list("gpudaskclusters", "gpudask.dev/v1alpha1")]

    await stage.becomes(clusters, [])


async def test_a_manifest_becomes_a_cluster_that_owns_and_is_owned(stage: Stage, mirroring: Operator, stock: Stock):
    made = await make(stock, a_cluster(idle_timeout=600, scheduler_service_type="NodePort"))
    await stage.becomes(lambda: stage.names(pool="default"), workers("default", 2))
    await stage.becomes(lambda: phase(stock), "Running")
    cluster, found = await stage.cluster(), await stock.get("daskcluster", "demo")
    assert found
    (owner,) = cluster["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("DaskCluster", made["metadata"]["uid"], True)
    assert [each["uid"] for each in found["metadata"]["ownerReferences"]] == [cluster["metadata"]["uid"]]
    assert found["metadata"]["labels"]["dask.org/cluster-name"] == "demo"
    assert "finalizers" not in found["metadata"]
    assert found["spec"] == made["spec"], "what somebody wrote stays"
    assert cluster["spec"]["network"] == {"allowFrom": [{"podSelector": {}}]}, "programs in the namespace connect"
    assert cluster["spec"]["idle"] == {"deleteAfter": "600s"}
    assert cluster["spec"]["scheduler"]["service"] == {"type": "NodePort"}
    await stage.becomes(lambda: stock.names("daskworkergroup"), ["demo-default"])
    await tells(stock, "Served", "True Served")
    await tells(stock, "CarriedOver", "True")
    await stays(lambda: stock.size("demo-default"), 2, 1)
    assert "overrides" not in (await stage.cluster())["spec"], "its own size is nobody's override"


async def test_a_manifest_whose_size_is_null_has_one_worker(stage: Stage, mirroring: Operator, stock: Stock):
    await make(stock, a_cluster(n_workers=None))
    await stage.becomes(lambda: stage.names(pool="default"), workers("default", 1))
    await stage.becomes(lambda: stock.size("demo-default"), 1)
    assert "overrides" not in (await stage.cluster())["spec"], "nobody set it"


async def test_the_stock_client_makes_scales_adapts_adds_takes_away_and_closes(
    stage: Stage, mirroring: Operator, stock: Stock, scheduler: None
):
    def start() -> KubeCluster:
        return KubeCluster(name="demo", namespace=stage.namespace, image="x", n_workers=2, quiet=True)

    cluster = await in_daemon(start)
    await stage.becomes(lambda: stage.names(pool="default"), workers("default", 2))
    await in_daemon(lambda: cluster.scale(3))
    await stage.becomes(lambda: stage.names(pool="default"), workers("default", 3))
    await in_daemon(lambda: cluster.adapt(minimum=2, maximum=2))
    await stage.becomes(lambda: stage.names(pool="default"), workers("default", 2))
    await in_daemon(lambda: cluster.scale(1))
    await stage.becomes(lambda: stage.names(pool="default"), workers("default", 1))
    await in_daemon(lambda: cluster.add_worker_group("high-mem", n_workers=1, resources=GPU))
    await stage.becomes(lambda: stage.names(pool="highmem"), workers("highmem", 1))
    await in_daemon(lambda: cluster.scale(2, worker_group="high-mem"))
    await stage.becomes(lambda: stage.names(pool="highmem"), workers("highmem", 2))
    assert await stock.names("daskworkergroup") == ["demo-default", "demo-high-mem"]
    await in_daemon(lambda: cluster.delete_worker_group("high-mem"))
    await stage.becomes(lambda: stage.names(pool="highmem"), [])
    await stays(lambda: stock.names("daskworkergroup"), ["demo-default"], 1)
    await in_daemon(cluster.close)
    await nothing_left(stage, stock)


async def test_a_group_is_scaled_by_its_replicas_and_a_gpu_group_is_a_gpu_pool(
    stage: Stage, mirroring: Operator, stock: Stock
):
    await make(stock, a_group("demo-gpu", resources=GPU, worker_command="dask-cuda-worker"))
    await tells(stock, "Served", "False NoDaskCluster: spec.cluster", "demo-gpu", "daskworkergroup")
    await make(stock, a_cluster())
    await stage.becomes(lambda: stage.names(pool="gpu"), workers("gpu", 1))
    (pool,) = (pool for pool in (await stage.cluster())["spec"]["pools"] if pool["name"] == "gpu")
    assert pool["gpu"]["count"] == 1
    await tells(stock, "Served", "True Served", "demo-gpu", "daskworkergroup")
    await stock.patch("daskworkergroup", "demo-gpu", {"spec": {"worker": {"replicas": 3}}})
    await stage.becomes(lambda: stage.names(pool="gpu"), workers("gpu", 3))
    await stock.patch("daskcluster", "demo", {"spec": {"worker": {"replicas": 1}}})
    await stage.becomes(lambda: stage.names(pool="default"), workers("default", 1))
    await stage.becomes(lambda: stock.size("demo-default"), 1)


async def test_an_edited_manifest_changes_the_cluster(stage: Stage, mirroring: Operator, stock: Stock):
    await make(stock, a_cluster())
    await stage.becomes(lambda: phase(stock), "Running")
    await stock.patch("daskcluster", "demo", {"spec": {"idleTimeout": 900}})

    async def idle() -> Any:
        return (await stage.cluster())["spec"].get("idle")

    await stage.becomes(idle, {"deleteAfter": "900s"})


async def test_a_deleted_gpudaskcluster_takes_its_daskcluster_along(stage: Stage, mirroring: Operator, stock: Stock):
    await make(stock, a_cluster())
    await stage.becomes(lambda: phase(stock), "Running")
    await stage.delete_cluster()
    await nothing_left(stage, stock)
    await stays(lambda: stock.names("daskcluster"), [], 1)


async def test_a_deleted_daskcluster_takes_its_gpudaskcluster_along(stage: Stage, mirroring: Operator, stock: Stock):
    await make(stock, a_cluster())
    await stage.becomes(lambda: phase(stock), "Running")
    await stock.delete("daskcluster", "demo")
    await nothing_left(stage, stock)


async def test_what_is_deleted_while_the_operator_is_away_stays_deleted(stage: Stage, stock: Stock, definitions: None):
    settings = replace(stage.settings, mirror=True)
    async with operating(settings):
        await make(stock, a_cluster())
        await stage.becomes(lambda: phase(stock), "Running")
    await stage.delete_cluster()
    async with operating(settings):
        await nothing_left(stage, stock)


async def test_a_name_that_is_taken_is_told_and_never_adopted(stage: Stage, stock: Stock, definitions: None):
    mine = await stage.apply(a_pool(replicas=1))
    await make(stock, a_cluster())
    async with operating(replace(stage.settings, mirror=True)):
        await tells(stock, "Served", "False NameTaken: metadata.name")
        assert await phase(stock) == "Error"
        await stage.shows("Mirrored", "False MirrorRefused")
        found = await stage.cluster()
        assert (found["metadata"]["uid"], found["spec"]) == (mine["metadata"]["uid"], mine["spec"])
        await stock.delete("daskcluster", "demo")
        await stage.shows("Mirrored", "True Mirrored")
    await stage.cluster()


async def test_a_group_that_is_made_again_has_its_own_size(stage: Stage, mirroring: Operator, stock: Stock):
    await make(stock, a_cluster())
    await make(stock, a_group())
    await stage.becomes(lambda: stage.names(pool="more"), workers("more", 1))
    await stock.patch("daskworkergroup", "demo-more", {"spec": {"worker": {"replicas": 3}}})
    await stage.becomes(lambda: stage.names(pool="more"), workers("more", 3))
    await stock.delete("daskworkergroup", "demo-more")
    await stage.becomes(lambda: stage.names(pool="more"), [])
    await make(stock, a_group())
    await stage.becomes(lambda: stage.names(pool="more"), workers("more", 1))
    await stays(lambda: stock.size("demo-more"), 1, 1)


async def version(stock: Stock, kind: str = "daskcluster", name: str = "demo") -> Any:
    found = await stock.get(kind, name)
    return found and found["metadata"]["resourceVersion"]


async def test_an_edit_that_cannot_be_read_is_told_once_and_the_cluster_goes_on(
    stage: Stage, mirroring: Operator, stock: Stock
):
    await make(stock, a_cluster())
    await stage.becomes(lambda: phase(stock), "Running")
    await stock.patch("daskcluster", "demo", {"spec": {"scheduler": None}})
    await tells(stock, "Served", "False Invalid: DaskCluster demo: spec.scheduler")
    await stage.becomes(lambda: phase(stock), "Error")
    await at_rest_async(lambda: version(stock), for_seconds=3)
    assert await phase(stock) == "Error"
    assert await stage.names(pool="default") == workers("default", 2)
    await stock.patch("daskcluster", "demo", {"spec": a_cluster()["spec"]})
    await stage.becomes(lambda: phase(stock), "Running")


async def test_a_daskcluster_that_others_own_takes_none_of_them_along(stage: Stage, mirroring: Operator, stock: Stock):
    other = await make(stock, a_cluster("other", n_workers=0))
    await stage.becomes(lambda: phase(stock, "other"), "Running")
    mine = await stage.apply(a_pool(replicas=1))
    served = next(
        item
        for item in await stage.list("gpudaskclusters", "gpudask.dev/v1alpha1")
        if item["metadata"]["name"] == "other"
    )
    body = a_cluster("step", n_workers=0)
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": item["apiVersion"], "kind": item["kind"], "name": name, "uid": item["metadata"]["uid"]}
        for name, item in (("demo", mine), ("other", served))
    ]
    await make(stock, body)
    await stage.becomes(lambda: phase(stock, "step"), "Running")
    await stock.delete("daskcluster", "step")
    await stage.becomes(lambda: stock.names("daskcluster"), ["demo", "other"])

    async def clusters() -> list[str]:
        return [item["metadata"]["name"] for item in await stage.list("gpudaskclusters", "gpudask.dev/v1alpha1")]

    await stage.becomes(clusters, ["demo", "other"])
    await stays(clusters, ["demo", "other"], 1)
    assert (await stock.get("daskcluster", "other") or {})["metadata"]["uid"] == other["metadata"]["uid"]


async def test_a_picture_by_another_name_takes_no_cluster_along(stage: Stage, mirroring: Operator, stock: Stock):
    await make(stock, a_cluster())
    await stage.becomes(lambda: phase(stock), "Running")
    cluster = await stage.cluster()
    body = a_cluster("copy", n_workers=0)
    body["spec"]["mirrors"] = "demo"
    owner = {"apiVersion": cluster["apiVersion"], "kind": cluster["kind"], "name": "demo", "controller": True}
    body["metadata"]["ownerReferences"] = [owner | {"uid": cluster["metadata"]["uid"]}]
    await make(stock, body)
    await stock.patch("daskcluster", "demo", {"spec": {"idleTimeout": 900}})  # when that is there, the copy was seen

    async def idle() -> Any:
        return (await stage.cluster())["spec"].get("idle")

    await stage.becomes(idle, {"deleteAfter": "900s"})
    await stock.delete("daskcluster", "copy")
    await stock.patch("daskcluster", "demo", {"spec": {"idleTimeout": 1000}})
    await stage.becomes(idle, {"deleteAfter": "1000s"})
    await stays(lambda: stock.names("daskcluster"), ["demo"], 1)
    assert (await stage.cluster())["metadata"]["uid"] == cluster["metadata"]["uid"]


def without_image(body: Json) -> None:
    del body["spec"]["worker"]["spec"]["containers"][0]["image"]


def without_scheduler(body: Json) -> None:
    del body["spec"]["scheduler"]


def with_long_name(body: Json) -> None:
    body["metadata"]["name"] = "a" * 40


def with_half_a_gpu(body: Json) -> None:
    body["spec"]["worker"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "0.5"}}


def with_arguments_that_are_no_list(body: Json) -> None:
    body["spec"]["scheduler"]["spec"]["containers"][0]["args"] = "dask-scheduler"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (without_image, "spec.worker.spec.containers"),
        (without_scheduler, "spec.scheduler.spec.containers"),
        (with_long_name, "metadata.name"),
        (with_half_a_gpu, "resources.limits.nvidia.com/gpu"),
        (with_arguments_that_are_no_list, "spec.scheduler.spec.containers[0].args"),
    ],
)
async def test_what_cannot_be_served_is_told_by_its_field(
    spoil: Any, words: str, stage: Stage, mirroring: Operator, stock: Stock
):
    body = a_cluster()
    spoil(body)
    name = body["metadata"]["name"]
    await make(stock, body)
    await make(stock, a_cluster("fine", n_workers=0))
    await tells(stock, "Served", words, name)
    assert await phase(stock, name) == "Error"
    await stage.becomes(lambda: phase(stock, "fine"), "Running")


async def test_one_bad_group_holds_nothing_up_and_what_is_left_out_is_told(
    stage: Stage, mirroring: Operator, stock: Stock
):
    bad = a_group("demo-bad")
    bad["spec"]["worker"]["spec"]["containers"] = []
    await make(stock, bad)
    body = a_cluster()
    body["spec"]["scheduler"]["spec"]["containers"][0]["args"] += ["--dashboard-prefix", "/x"]
    await make(stock, body)
    await stage.becomes(lambda: stage.names(pool="default"), workers("default", 2))
    await tells(stock, "Served", "False Invalid: spec.worker.spec.containers", "demo-bad", "daskworkergroup")
    await tells(stock, "CarriedOver", "False NotCarriedOver: spec.scheduler.spec.containers[0].args")

    async def reasons() -> set[str]:
        path = f"/apis/events.k8s.io/v1/namespaces/{stage.namespace}/events"
        events = (await stage.api.request("GET", path))["items"]
        return {event["reason"] for event in events if event["regarding"]["kind"].startswith("Dask")}

    await stage.becomes(reasons, {"CommandReplaced", "NotCarriedOver", "Served", "Invalid"})


WRITES = [
    ("POST", "/gpudaskclusters"),
    ("PATCH", "/daskclusters/demo"),
    ("PATCH", "/daskworkergroups/demo-more"),
    ("POST", "/daskworkergroups"),
]


@pytest.mark.parametrize("write", WRITES, ids="-".join)
async def test_an_operator_that_ended_before_a_write_is_gone_on_with(
    write: tuple[str, str], stage: Stage, stock: Stock, proxy: Proxy, through: Settings
):
    proxy.faults = [(*write, 503)] * 1000
    await make(stock, a_cluster())
    await make(stock, a_group())
    async with operating(replace(through, mirror=True)):

        async def tried() -> str:
            return "yes" if len(proxy.faults) < 1000 else "not yet"

        await stage.becomes(tried, "yes", f"{write} was tried")
    proxy.faults = []
    async with operating(replace(through, mirror=True)):
        await stage.becomes(lambda: stage.names(pool="default"), workers("default", 2))
        await stage.becomes(lambda: stage.names(pool="more"), workers("more", 1))
        await stage.becomes(lambda: phase(stock), "Running")
        await tells(stock, "Served", "True", "demo-more", "daskworkergroup")
        await stage.becomes(lambda: stock.names("daskworkergroup"), ["demo-default", "demo-more"])
        assert "overrides" not in (await stage.cluster())["spec"]


async def test_gpu_workers_follow_gpu_demand_within_the_limits_of_an_autoscaler(
    stage: Stage, mirroring: Operator, stock: Stock
):
    await stock.limit(0, 2)
    await make(stock, a_cluster(n_workers=0, resources=GPU, worker_command="dask-cuda-worker"))
    await stage.becomes(lambda: phase(stock), "Running")
    task = await stage.scheduler()
    await task.want(1, GPU=1)
    await stage.becomes(lambda: stage.names(pool="default"), workers("default", 1))
    await task.want(9, GPU=1)
    await stage.becomes(lambda: stage.names(pool="default"), workers("default", 2))


async def test_another_controller_of_a_daskcluster_stays_its_controller(
    stage: Stage, mirroring: Operator, stock: Stock
):
    job = {"apiVersion": "kubernetes.dask.org/v1", "kind": "DaskJob", "name": "demo", "uid": "1", "controller": True}
    body = a_cluster()
    body["metadata"]["ownerReferences"] = [job]
    await make(stock, body)
    await stage.becomes(lambda: phase(stock), "Running")
    found = await stock.get("daskcluster", "demo")
    assert found
    owners = {owner["kind"]: owner.get("controller") for owner in found["metadata"]["ownerReferences"]}
    assert owners == {"DaskJob": True}, "with another owner it would stay when the job goes"
    await stock.delete("daskcluster", "demo")
    await nothing_left(stage, stock)


async def test_an_owner_that_comes_later_takes_both_along(stage: Stage, mirroring: Operator, stock: Stock):
    await make(stock, a_cluster(n_workers=0))
    await stage.becomes(lambda: phase(stock), "Running")
    found = await stock.get("daskcluster", "demo")
    assert found
    flow = {"apiVersion": "v1", "kind": "ConfigMap", "name": "flow", "uid": "1"}
    await stock.patch(
        "daskcluster", "demo", {"metadata": {"ownerReferences": [*found["metadata"]["ownerReferences"], flow]}}
    )

    async def owners() -> list[str]:
        body = await stock.get("daskcluster", "demo")
        return [item["kind"] for item in (body or {"metadata": {}})["metadata"].get("ownerReferences", [])]

    await stage.becomes(owners, ["ConfigMap"], "Kubernetes deletes it with its other owner")
    await stage.delete_cluster()
    await nothing_left(stage, stock)


async def test_an_edit_that_spoils_a_group_leaves_its_pods(stage: Stage, mirroring: Operator, stock: Stock):
    await make(stock, a_cluster(n_workers=0))
    await make(stock, a_group())
    await stage.becomes(lambda: stage.names(pool="more"), workers("more", 1))
    await stock.patch("daskworkergroup", "demo-more", {"spec": {"worker": {"spec": {"containers": []}}}})
    await tells(stock, "Served", "False Invalid: spec.worker.spec.containers", "demo-more", "daskworkergroup")
    await stays(lambda: stage.names(pool="more"), workers("more", 1), 1)
    assert [pool["name"] for pool in (await stage.cluster())["spec"]["pools"]] == ["default", "more"]
