"""The calls to the API server one by one, on a fake one: what is sent, and what a refusal says."""

import asyncio
from collections.abc import Callable

import pytest

from gpudask import KubeClusterError
from gpudask.kubecluster import pods
from gpudask.kubecluster.server import Server
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import until


async def test_a_created_cluster_is_listed_and_deleted(server: fake.FakeServer):
    api = await Server.connect(None)
    await api.create({"metadata": {"name": "mine"}, "spec": {}})

    assert [body["metadata"]["name"] for body in await api.clusters()] == ["demo", "mine"]
    assert [body["metadata"]["name"] for body in await api.clusters(all_namespaces=True)] == ["demo", "mine"]
    assert await api.delete("mine")
    assert not await api.delete("mine")
    assert list(server.clusters) == ["demo"]


async def test_creating_what_exists_says_how_to_connect(server: fake.FakeServer):
    api = await Server.connect(None)

    with pytest.raises(KubeClusterError, match=r"'demo' exists already.*from_name\('demo'\)") as raised:
        await api.create({"metadata": {"name": "demo"}, "spec": {}})

    assert raised.value.status == 409


async def test_a_merge_patch_leaves_the_rest_alone(server: fake.FakeServer):
    api = await Server.connect(None)

    changed = await api.merge("demo", {"spec": {"suspend": True}})

    assert changed["spec"]["suspend"] is True
    assert [pool["name"] for pool in changed["spec"]["pools"]] == ["cpu", "gpu"]


async def test_watching_gives_each_change_and_ends_with_the_cluster(server: fake.FakeServer):
    api = await Server.connect(None)

    async def watch() -> list[str]:
        return [body["metadata"]["resourceVersion"] async for body in api.watch("demo")]

    task = asyncio.create_task(watch())
    await until(lambda: bool(server.watchers), "a watch")
    server.tell("MODIFIED", with_version(server, "2"))
    server.tell("DELETED", with_version(server, "3"))

    assert await asyncio.wait_for(task, 10) == ["1", "2"]


async def test_without_permission_to_watch_it_asks(server: fake.FakeServer):
    server.forbidden.add("WATCH")
    api = await Server.connect(None)
    watching = api.watch("demo")

    assert (await anext(watching))["metadata"]["resourceVersion"] == "1"
    server.clusters["demo"] = with_version(server, "2")
    assert (await asyncio.wait_for(anext(watching), 10))["metadata"]["resourceVersion"] == "2"
    del server.clusters["demo"]
    assert [body async for body in watching] == []


async def test_logs_are_read_from_their_end_and_of_the_container_before(server: fake.FakeServer):
    server.logs = {"demo-gpu-worker-0": ["one", "two", "three"], "demo-gpu-worker-0 previous": ["last words"]}
    api = await Server.connect(None)

    assert await pods.read_log(api, "demo-gpu-worker-0", tail=2) == ["two", "three"]
    assert await pods.read_log(api, "demo-gpu-worker-0", previous=True) == ["last words"]
    assert [line async for line in pods.follow_log(api, "demo-gpu-worker-0")] == ["one", "two", "three"]


async def test_pods_are_those_of_one_cluster_and_pool(server: fake.FakeServer):
    server.pods = [
        fake.scheduler_pod("demo-scheduler-00000"),
        fake.pod("demo-gpu-worker-0", "worker", **{"gpudask.dev/pool": "gpu"}),
        fake.pod("other-gpu-worker-0", "worker", **{"gpudask.dev/pool": "gpu"}),
    ]
    api = await Server.connect(None)

    assert names(await pods.list_pods(api, "demo")) == ["demo-gpu-worker-0", "demo-scheduler-00000"]
    assert names(await pods.list_pods(api, "demo", pool="gpu")) == ["demo-gpu-worker-0"]
    assert names(await pods.list_pods(api, "demo", component="scheduler")) == ["demo-scheduler-00000"]
    assert names([await pods.get_pod(api, "other-gpu-worker-0")]) == ["other-gpu-worker-0"]


async def test_events_are_those_of_one_object_the_last_at_the_end(server: fake.FakeServer):
    server.events = [
        event("b", "uid-of-demo", eventTime="2026-01-01T00:00:02.000000Z"),
        event("a", "uid-of-demo", lastTimestamp="2026-01-01T00:00:01Z"),
        event("c", "uid-of-other", eventTime="2026-01-01T00:00:03.000000Z"),
    ]
    api = await Server.connect(None)

    assert [item["reason"] for item in await pods.list_events(api, uid="uid-of-demo")] == ["a", "b"]


@pytest.mark.parametrize(
    ("forbidden", "call", "rule"),
    [
        (
            "POST gpudaskclusters",
            lambda api: api.create({"metadata": {"name": "mine"}}),
            'Role in namespace \'lab\' with the rule {apiGroups: ["gpudask.dev"], resources: ["gpudaskclusters"]',
        ),
        ("DELETE demo", lambda api: api.delete("demo"), 'resources: ["gpudaskclusters"], verbs: ["delete"]'),
        ("GET log", lambda api: pods.read_log(api, "p"), '[""], resources: ["pods/log"], verbs: ["get"]'),
        ("GET events", pods.list_events, '[""], resources: ["events"], verbs: ["list"]'),
        (
            "GET gpudaskclusters",
            lambda api: api.clusters(all_namespaces=True),
            'a ClusterRole with the rule {apiGroups: ["gpudask.dev"]',
        ),
        ("GET nodes", pods.list_nodes, 'a ClusterRole with the rule {apiGroups: [""], resources'),
    ],
)
async def test_a_refusal_names_the_rule_that_is_missing(
    server: fake.FakeServer, forbidden: str, call: Callable, rule: str
):
    server.forbidden.add(forbidden)
    api = await Server.connect(None)

    with pytest.raises(KubeClusterError) as raised:
        await call(api)

    assert rule in str(raised.value)
    assert raised.value.status == 403


def with_version(server: fake.FakeServer, version: str) -> fake.Json:
    body = server.clusters["demo"]
    return body | {"metadata": body["metadata"] | {"resourceVersion": version}}


def names(bodies: list[fake.Json]) -> list[str]:
    return [body["metadata"]["name"] for body in bodies]


def event(reason: str, uid: str, **times: str) -> fake.Json:
    return {"metadata": {}, "reason": reason, "involvedObject": {"uid": uid}, **times}
