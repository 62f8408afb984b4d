"""From a manifest to objects and back, on a real API server."""

from __future__ import annotations

import asyncio

import pytest

from gpudask.desired import names, preload
from gpudask.preload import files
from gpudask.reconcile.operator import Operator
from tests.builders import a_pool
from tests.planning.builders import gpu_pool, scaled
from tests.reconcile.stage import Stage, eventually, operating, stays

pytestmark = pytest.mark.api


async def test_a_manifest_becomes_objects_that_belong_to_it(stage: Stage, operator: Operator):
    made = await stage.apply(a_pool(replicas=2), gpu_pool())
    await stage.shows("Ready", "True AllReady")
    assert await stage.names() == ["demo-cpu-worker-0", "demo-cpu-worker-1"]
    owned = [await stage.list(plural) for plural in ("pods", "services", "configmaps", "secrets")]
    ours = [item for items in owned for item in items if item["metadata"]["name"].startswith("demo-")]
    assert len(ours) == 2 + 1 + 1 + 1, "workers, the scheduler, its Service and what it is told"
    for item in ours:
        (reference,) = item["metadata"]["ownerReferences"]
        assert (reference["uid"], reference["controller"]) == (made["metadata"]["uid"], True)
        assert "finalizers" not in item["metadata"]
    assert "finalizers" not in (await stage.cluster())["metadata"]
    status = await stage.status()
    assert status["summary"] == {"cpu": "2/2", "gpu": "0/0", "worked": ""}
    assert status["scheduler"]["address"] == f"tcp://demo-scheduler.{stage.namespace}.svc:8786"


async def test_a_gpu_task_brings_a_gpu_pod_and_its_end_takes_it_away(stage: Stage, operator: Operator):
    await stage.apply(scaled(least=1), gpu_pool(idle="1s"))
    scheduler = await stage.scheduler()
    await scheduler.want(1, GPU=1)
    await stage.becomes(lambda: stage.names(pool="gpu"), ["demo-gpu-worker-0"])
    await scheduler.want(0)
    await stage.becomes(lambda: stage.names(pool="gpu"), [])
    assert await stage.names() == ["demo-cpu-worker-0"]
    assert not [name for name in scheduler.tokens if len(name) != 64], "every request carried the token"


async def test_deletion_while_the_operator_is_away_leaves_it_nothing_to_do(stage: Stage):
    async with operating(stage.settings):
        await stage.apply(a_pool(replicas=1))
        await stage.shows("Ready", "True AllReady")
    await stage.delete_cluster()
    with pytest.raises(Exception, match="not found"):
        await stage.cluster()
    # Kubernetes' garbage collector takes the rest by the owner references; none runs here, and nothing holds it back.
    for plural in ("pods", "services", "configmaps", "secrets"):
        for item in await stage.list(plural):
            assert not item["metadata"].get("finalizers")
    before = await stage.names()
    async with operating(stage.settings):
        await stays(stage.names, before, 1.5)


async def test_pods_that_go_before_word_of_their_clusters_deletion_comes_are_not_made_again(
    stage: Stage, operator: Operator, monkeypatch: pytest.MonkeyPatch
):
    await stage.apply(a_pool(replicas=2))
    await stage.shows("Ready", "True AllReady")

    async def settled() -> bool:
        before = (await stage.cluster())["metadata"]["resourceVersion"]
        await asyncio.sleep(1.0)
        return bool((await stage.cluster())["metadata"]["resourceVersion"] == before)

    await stage.becomes(settled, wanted=True, what="nothing left to write: a write would tell that the cluster is gone")
    told: list[str] = []
    monkeypatch.setattr(operator.registry, "cluster_deleted", told.append)
    await stage.delete_cluster()
    for pod in await stage.pods():  # as the garbage collector does, which runs beside the watches
        await stage.delete("pods", pod["metadata"]["name"], gracePeriodSeconds=0)
    await stays(stage.names, [], 2.0)

    async def of_its_end() -> list[str]:
        return told

    await eventually(of_its_end, bool, "the operator is told at last")
    assert await stage.names() == []


async def test_a_pod_deleted_by_hand_returns(stage: Stage, operator: Operator):
    await stage.apply(a_pool(replicas=2))
    await stage.shows("Ready", "True AllReady")
    old = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await stage.pods()}
    await stage.delete("pods", "demo-cpu-worker-0", gracePeriodSeconds=0)

    async def fresh() -> bool:
        return len({pod["metadata"]["uid"] for pod in await stage.pods()} - set(old.values())) == 1

    await stage.becomes(fresh, wanted=True, what="a new pod")
    await stage.shows("Ready", "True AllReady")
    assert len(await stage.names()) == 2


async def test_an_edited_or_deleted_service_comes_back(stage: Stage, operator: Operator):
    await stage.apply(a_pool())
    await stage.shows("Ready", "True AllReady")

    async def selector() -> object:
        found = await stage.get("services", "demo-scheduler")
        return found and found["spec"]["selector"]

    wanted = await selector()
    await stage.patch("services", "demo-scheduler", {"spec": {"selector": {"dask.org/component": "other"}}})
    await stage.becomes(selector, wanted)
    await stage.patch("services", "demo-scheduler", {"metadata": {"annotations": {"by": "somebody"}}})
    await stage.delete("services", "demo-scheduler")
    await stage.becomes(selector, wanted)


async def test_ucx_finds_the_scheduler_by_a_service_without_an_address_of_its_own(stage: Stage, operator: Operator):
    await stage.apply(a_pool(), protocol="ucxx")
    await stage.shows("Ready", "True AllReady")

    async def addresses() -> list[str]:
        named = ("demo-scheduler", "demo-scheduler-headless")
        found = [await stage.get("services", name) for name in named]
        return ["" if body is None else body["spec"]["clusterIP"] for body in found]

    proxied, direct = await addresses()
    assert proxied not in ("", "None")
    assert direct == "None"
    assert (await stage.status())["scheduler"]["address"].startswith("ucxx://demo-scheduler-headless.")
    await stage.delete("services", "demo-scheduler-headless")
    await stage.becomes(addresses, [proxied, "None"])


async def test_the_service_leaves_a_scheduler_that_ends_and_finds_the_next_one_by_the_same_selector(
    stage: Stage, operator: Operator
):
    """The stock client's port-forward reads the selector once, and finds the successor by it."""
    await stage.apply(a_pool())
    await stage.shows("Ready", "True AllReady")
    service = await stage.get("services", "demo-scheduler")
    assert service is not None
    selector = service["spec"]["selector"]

    async def led_to() -> dict[str, str]:
        pods = [pod["metadata"] for pod in await stage.list("pods")]
        return {meta["uid"]: meta["name"] for meta in pods if selector.items() <= meta["labels"].items()}

    ((uid, name),) = (await led_to()).items()
    stage.kubelet.keeps.add(name)
    await stage.delete("pods", name)
    await stage.becomes(led_to, {})
    stage.kubelet.keeps.clear()
    stage.kubelet.look_again()

    async def leads_to_another() -> bool:
        return bool(await led_to()) and uid not in await led_to()

    await stage.becomes(leads_to_another, wanted=True)
    await stage.shows("Ready", "True AllReady")
    service = await stage.get("services", "demo-scheduler")
    assert service is not None
    assert service["spec"]["selector"] == selector


async def test_a_scheduler_that_an_older_version_made_is_named_by_its_service(stage: Stage, operator: Operator):
    await stage.apply(a_pool())
    await stage.shows("Ready", "True AllReady")
    (name,) = [name for pod in await stage.list("pods") if "-scheduler-" in (name := pod["metadata"]["name"])]
    await stage.patch("pods", name, {"metadata": {"labels": {"gpudask.dev/serves": None}}})

    async def selector() -> object:
        found = await stage.get("services", "demo-scheduler")
        return found and found["spec"]["selector"]

    await stage.becomes(selector, {"dask.org/component": "scheduler", "gpudask.dev/scheduler": name})


async def test_an_edited_or_deleted_configmap_comes_back(stage: Stage, operator: Operator):
    await stage.apply(a_pool())
    await stage.shows("Ready", "True AllReady")
    name = names.token("demo")

    async def pools() -> object:
        found = await stage.get("configmaps", name)
        return found and found["data"].get("pools.json")

    wanted = await pools()
    assert wanted
    await stage.patch("configmaps", name, {"data": {"pools.json": "{}"}})
    await stage.becomes(pools, wanted)
    await stage.delete("configmaps", name)
    await stage.becomes(pools, wanted)


async def test_clusters_share_the_preload_and_the_last_one_takes_it_away(stage: Stage, operator: Operator):
    """No garbage collector runs here: what it would do is played."""
    name = preload.name(files())

    async def owners() -> list[str]:
        found = await stage.get("configmaps", name) or {"metadata": {}}
        return sorted(item["name"] for item in found["metadata"].get("ownerReferences", ()))

    for cluster in ("demo", "other"):
        await stage.apply(a_pool(), name=cluster)
        await stage.shows("Ready", "True AllReady", name=cluster)
    await stage.becomes(owners, ["demo", "other"])
    assert [item["metadata"]["name"] for item in await stage.list("configmaps")].count(name) == 1
    demo = (await stage.cluster())["metadata"]["uid"]
    await stage.delete_cluster()
    gone = [{"$patch": "delete", "uid": demo}]
    await stage.api.patch_references(stage.namespace, name, gone, uid=await uid_of(stage, name))
    await stays(owners, ["other"], 1.0)
    await stage.delete("configmaps", name)
    await stage.becomes(owners, ["other"], "somebody deleted it")


async def uid_of(stage: Stage, name: str) -> str:
    found = await stage.get("configmaps", name)
    assert found is not None
    return str(found["metadata"]["uid"])


async def test_other_contents_in_the_place_of_the_preload_are_replaced(stage: Stage, operator: Operator):
    name = preload.name(files())
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"gpudask.dev/preload": "shared"}},
        "data": {"gpudask_entry.py": "raise SystemExit"},
        "immutable": True,
    }
    await stage.create("configmaps", body)
    await stage.apply(a_pool())
    await stage.shows("Ready", "True AllReady")
    found = await stage.get("configmaps", name)
    assert found is not None
    assert preload.named(found) == name


async def test_what_others_add_to_a_service_stays(stage: Stage, operator: Operator):
    await stage.apply(a_pool())
    await stage.shows("Ready", "True AllReady")
    await stage.patch("services", "demo-scheduler", {"metadata": {"annotations": {"by": "somebody"}}})
    await stage.apply(a_pool(), scheduler={"service": {"annotations": {"ours": "1"}}})

    async def annotations() -> object:
        found = await stage.get("services", "demo-scheduler")
        return found and {k: v for k, v in found["metadata"].get("annotations", {}).items() if "gpudask.dev" not in k}

    await stage.becomes(annotations, {"by": "somebody", "ours": "1"})


async def test_delete_and_apply_again_at_once_makes_another_cluster(stage: Stage, operator: Operator):
    first = await stage.apply(a_pool(replicas=2))
    await stage.shows("Ready", "True AllReady")
    await stage.delete_cluster()
    second = await stage.apply(a_pool(replicas=2))

    async def owners() -> list[str]:
        return sorted({pod["metadata"]["ownerReferences"][0]["uid"] for pod in await stage.pods()})

    both = sorted([first["metadata"]["uid"], second["metadata"]["uid"]])
    await stage.becomes(owners, both, "the second cluster's pods beside the first's, which nobody collects here")
    await stage.shows("Ready", "True AllReady")
    assert await stage.names() == [f"demo-cpu-worker-{n}" for n in range(4)]
    service = await stage.get("services", "demo-scheduler")
    assert service
    assert [owner["uid"] for owner in service["metadata"]["ownerReferences"]] == [second["metadata"]["uid"]]


async def test_workers_get_an_edited_image_with_their_scheduler_and_until_then_the_one_that_it_has(
    stage: Stage, operator: Operator
):
    del operator
    await stage.apply(a_pool(replicas=1), image="dask:1")
    scheduler = await stage.scheduler()
    await stage.shows("Ready", "True AllReady")
    (first,) = await _made_of(stage)
    scheduler.tasks = 1  # a result that a client holds
    await scheduler.say()

    await stage.apply(a_pool(replicas=2), image="dask:2", protocol="tls")
    await stage.shows("SchedulerReady", "workers meanwhile keep the image dask:1 and the protocol tcp")
    await stage.shows("Ready", "True AllReady")
    made = await _made_of(stage)
    assert first in made, "the worker that was there was replaced"
    assert [(image, protocol) for _, image, protocol in made] == [("dask:1", "tcp")] * 2
    status = await stage.status()
    assert status["scheduler"]["address"].startswith("tcp://")
    assert status["pools"][0]["outdated"] == 2

    scheduler.tasks = 0
    await scheduler.say()

    async def images() -> list[tuple[str, str]]:
        return [(image, protocol) for _, image, protocol in await _made_of(stage)]

    await stage.becomes(images, [("dask:2", "tls")] * 2, "the new image comes with the new scheduler")


async def _made_of(stage: Stage) -> list[tuple[str, str, str]]:
    """The workers' pods by uid, each with its image and protocol."""
    containers = [(pod["metadata"]["uid"], pod["spec"]["containers"][0]) for pod in await stage.pods()]
    found = []
    for uid, container in containers:
        words = container["args"]
        protocol = words[words.index("--protocol") + 1] if "--protocol" in words else "tcp"
        found.append((uid, container["image"], protocol))
    return found


async def test_suspension_takes_everything_down_and_keeps_the_resource(stage: Stage, operator: Operator):
    await stage.apply(a_pool(replicas=2))
    await stage.shows("Ready", "True AllReady")
    await stage.apply(a_pool(replicas=2), suspend=True)
    await stage.shows("Ready", "False Suspended")
    assert await stage.list("pods") == []
    await stage.apply(a_pool(replicas=2))
    await stage.shows("Ready", "True AllReady")
