"""The API server's behaviour that the operator relies on, checked on a real one."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import json
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from gpudask.planning.observed.parser import parse_pod
from tests.builders import a_manifest
from tests.kubectl import Kubectl

pytestmark = pytest.mark.api


@pytest.fixture
async def api(in_namespace: Kubectl) -> AsyncIterator[Kubernetes]:
    api = await Kubernetes.connect(str(in_namespace.kubeconfig))
    yield api
    await api.close()


def pod(namespace: str, name: str = "p", **spec: Any) -> Json:
    body = {"containers": [{"name": "dask", "image": "i"}], "terminationGracePeriodSeconds": 0}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": body | spec,
    }


async def test_a_typo_is_refused_with_its_path(api: Kubernetes, in_namespace: Kubectl):
    with pytest.raises(ApiError, match=r'unknown field "spec\.nodeSelecter"') as caught:
        await api.create(pod(in_namespace.namespace, nodeSelecter={}))
    assert caught.value.invalid


async def test_a_dry_run_makes_nothing(api: Kubernetes, in_namespace: Kubectl):
    await api.create(pod(in_namespace.namespace), dry_run=True)
    with pytest.raises(ApiError) as caught:
        await api.get_pod(in_namespace.namespace, "p")
    assert caught.value.not_found


async def test_a_name_that_exists_is_a_conflict(api: Kubernetes, in_namespace: Kubectl):
    await api.create(pod(in_namespace.namespace))
    with pytest.raises(ApiError) as caught:
        await api.create(pod(in_namespace.namespace))
    assert caught.value.conflict


async def test_applying_the_same_twice_writes_once(api: Kubernetes, in_namespace: Kubectl):
    meta = {"name": "c", "namespace": in_namespace.namespace}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "1"}}
    versions = [(await api.apply(body))["metadata"]["resourceVersion"] for _ in range(2)]
    assert versions[0] == versions[1]


async def test_a_pod_that_changed_or_is_another_is_not_deleted(api: Kubernetes, in_namespace: Kubectl):
    made = (await api.create(pod(in_namespace.namespace)))["metadata"]
    changed = await api.mark_pod(in_namespace.namespace, "p", uid=made["uid"], annotations={"a": "1"})
    for uid, version in ((made["uid"], made["resourceVersion"]), ("another", None)):
        with pytest.raises(ApiError) as caught:
            await api.delete_pod(in_namespace.namespace, "p", uid=uid, version=version, never_ran=True)
        assert caught.value.conflict
    version = changed["metadata"]["resourceVersion"]
    await api.delete_pod(in_namespace.namespace, "p", uid=made["uid"], version=version, never_ran=True)


async def test_an_annotation_is_not_put_on_another_pod_of_that_name(api: Kubernetes, in_namespace: Kubectl):
    await api.create(pod(in_namespace.namespace))
    with pytest.raises(ApiError) as caught:
        await api.mark_pod(in_namespace.namespace, "p", uid="another", annotations={"a": "1"})
    assert caught.value.conflict or caught.value.invalid


async def test_a_status_is_not_written_to_another_cluster_of_that_name(api: Kubernetes, in_namespace: Kubectl):
    in_namespace("apply", "-f", "-", stdin=json.dumps(a_manifest()))
    metadata = (await api.get_cluster(in_namespace.namespace, "demo"))["metadata"]
    uid, version = metadata["uid"], metadata["resourceVersion"]
    with pytest.raises(ApiError) as caught:
        await api.write_status(in_namespace.namespace, "demo", uid="another", version=version, status={"phase": "x"})
    assert caught.value.invalid
    written = await api.write_status(in_namespace.namespace, "demo", uid=uid, version=version, status={"phase": "x"})
    assert written["metadata"]["resourceVersion"] != version
    assert (await api.get_cluster(in_namespace.namespace, "demo"))["status"]["phase"] == "x"


async def test_a_status_is_not_written_over_one_that_was_not_seen(api: Kubernetes, in_namespace: Kubectl):
    in_namespace("apply", "-f", "-", stdin=json.dumps(a_manifest()))
    metadata = (await api.get_cluster(in_namespace.namespace, "demo"))["metadata"]
    uid, version = metadata["uid"], metadata["resourceVersion"]
    await api.write_status(in_namespace.namespace, "demo", uid=uid, version=version, status={"phase": "x"})
    with pytest.raises(ApiError) as caught:
        await api.write_status(in_namespace.namespace, "demo", uid=uid, version=version, status={"phase": "y"})
    assert caught.value.conflict
    assert (await api.get_cluster(in_namespace.namespace, "demo"))["status"]["phase"] == "x"


async def test_no_server_is_an_error_of_ours(in_namespace: Kubectl):
    api = await Kubernetes.connect(str(in_namespace.kubeconfig))
    api._api.configuration.host = "https://127.0.0.1:9"
    try:
        with pytest.raises(ApiError) as caught:
            await api.get_pod("default", "p")
        assert caught.value.status == 0
        assert api.clock.now() - 60 < api.clock.unanswered_at() <= api.clock.now()
    finally:
        await api.close()


@pytest.mark.parametrize("asked_before", [False, True])
async def test_a_pod_that_is_removed_is_stamped_with_that_time_which_is_told_before_its_end(
    api: Kubernetes, in_namespace: Kubectl, asked_before: bool
):
    """So is one whose deletion with some grace was asked for before, as the kubelet's is: with the last time of all."""
    made = await api.create(pod(in_namespace.namespace, nodeName="n", terminationGracePeriodSeconds=30))
    path = f"/api/v1/namespaces/{in_namespace.namespace}/pods"
    if asked_before:
        await api.delete_pod(in_namespace.namespace, "p", uid=made["metadata"]["uid"])
    await asyncio.sleep(1.1)  # the next second of the stamps: until then both deletions have the same one
    before = await server_time(api)
    await api.request("DELETE", f"{path}/p", body={"gracePeriodSeconds": 0})
    query = {"watch": "true", "resourceVersion": made["metadata"]["resourceVersion"], "timeoutSeconds": "3"}
    told = [event async for event in api.stream(path, query=query)]
    assert [event["type"] for event in told] == [*["MODIFIED"] * (1 + asked_before), "DELETED"]
    for event in told[-2:]:
        removed = parse_pod(event["object"])
        assert (removed.grace_seconds, removed.finalizers) == (0.0, ())
        assert before <= removed.delete_by <= await server_time(api)


async def server_time(api: Kubernetes) -> float:
    """The API server's time in whole seconds, as it stamps."""
    response = await api._send("GET", "/version", {}, limit=10.0)
    return parsedate_to_datetime(response.headers["Date"]).timestamp()
