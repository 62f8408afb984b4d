"""The calls to the API server one by one, on a fake one: what is sent, and what a refusal says."""

import asyncio
from collections.abc import Callable

import pytest

from gpudask import KubeClusterError
from gpudask.kubecluster.kube import pods
from gpudask.kubecluster.kube.server import Server
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


async def test_changes_are_told_until_the_server_ends_them(server: fake.FakeServer):
    api = await Server.connect(None)

    async def changes() -> list[tuple[str, str]]:
        return [(kind, body["metadata"]["resourceVersion"]) async for kind, body in api.changes("1", name="demo")]

    task = asyncio.create_task(changes())
    await until(lambda: bool(server.watchers), "a watch")
    server.tell("MODIFIED", with_version(server, "2"))
    server.tell("DELETED", with_version(server, "3"))
    server.tell("ERROR", {"code": 410})

    assert await asyncio.wait_for(task, 60) == [("MODIFIED", "2"), ("DELETED", "3")]


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

    assert names(await pods.list_pods(api, "demo", "uid-of-demo")) == ["demo-gpu-worker-0", "demo-scheduler-00000"]
    assert names(await pods.list_pods(api, "demo", "uid-of-demo", pool="gpu")) == ["demo-gpu-worker-0"]
    assert names(await pods.list_pods(api, "demo", "uid-of-demo", component="scheduler")) == ["demo-scheduler-00000"]


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
        (
            "GET gpudaskclusters",
            lambda api: api.clusters(all_namespaces=True),
            'a ClusterRole with the rule {apiGroups: ["gpudask.dev"]',
        ),
        (
            "GET nodes",
            lambda api: api.call("list", "nodes", namespace=""),
            'a ClusterRole with the rule {apiGroups: [""], resources',
        ),
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
