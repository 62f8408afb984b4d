"""A cluster's loop ends when the cluster is gone, not because of a single 404."""

from __future__ import annotations

import asyncio

import pytest

from tests.builders import a_pool
from tests.clients.fake_api_server import Answer, refusal
from tests.reconcile.in_memory import Operated, becomes, operated
from tests.virtual_time import VirtualPolicy

STARTING = Answer(404, b"404 page not found\n")
UNKNOWN = refusal(404, "the server could not find the requested resource", "NotFound")
CLUSTER = "gpudaskclusters/demo"


@pytest.fixture(scope="module")
def event_loop_policy() -> VirtualPolicy:
    """Back-offs of minutes pass at once."""
    return VirtualPolicy()


async def a_status_is_written(on: Operated) -> None:
    on.context.pods.upsert("default", _unschedulable(on))


async def pods_are_made(on: Operated) -> None:
    on.lose("demo-cpu-worker-0")


def _unschedulable(on: Operated) -> dict[str, object]:
    """The pod as the Kubernetes scheduler says that it finds no node."""
    path = "/api/v1/namespaces/default/pods/demo-cpu-worker-0"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    return on.server.put(path, on.server.objects[path] | {"status": {"conditions": [condition]}})


async def begun(on: Operated) -> None:
    on.apply(a_pool("cpu", replicas=2))
    await becomes(on.pods, lambda pods: "demo-cpu-worker-1" in pods)
    passes = on.loop()._reconciler
    await becomes(lambda: len(passes._live), 3)  # that one is lost, only a pass notices that has seen it
    await becomes(lambda: on.condition("SchedulerReady"), lambda said: "starting" in said)


@pytest.mark.parametrize("happens", [a_status_is_written, pods_are_made])
@pytest.mark.parametrize("answer", [STARTING, UNKNOWN], ids=["starting", "unknown"])
async def test_one_false_404_ends_nothing(happens, answer: Answer):  # noqa: ANN001
    async with operated() as on:
        await begun(on)
        method, path = ("PATCH", f"{CLUSTER}/status") if happens is a_status_is_written else ("GET", CLUSTER)
        fault = on.server.fail(method, path, answer, times=1)
        await happens(on)
        await becomes(lambda: fault.met, 1)
        on.lose("demo-cpu-worker-1")
        await becomes(on.pods, lambda pods: {"demo-cpu-worker-0", "demo-cpu-worker-1"} <= set(pods))
        assert not on.tasks["demo"].done()


async def test_an_api_server_that_starts_ends_nothing_however_often_it_is_asked():
    async with operated(random=lambda: 0.0) as on:
        await begun(on)
        fault = on.server.fail("GET", CLUSTER, STARTING)
        await pods_are_made(on)
        await becomes(lambda: fault.met, lambda met: met >= 4)
        assert not on.tasks["demo"].done()
        on.server.mend()
        await becomes(on.pods, lambda pods: "demo-cpu-worker-0" in pods)


@pytest.mark.parametrize("happens", [a_status_is_written, pods_are_made])
@pytest.mark.parametrize("ends", [Operated.delete, Operated.replace], ids=["deleted", "another"])
async def test_a_cluster_that_is_gone_gets_nothing_more(happens, ends):  # noqa: ANN001
    async with operated() as on:
        await begun(on)
        ends(on)
        asked = len(on.server.log)
        await happens(on)
        if ends is Operated.replace and happens is a_status_is_written:
            on.lose("demo-cpu-worker-1")  # a status for another uid is refused; the next creation finds out why
        async with asyncio.timeout(10):
            await on.tasks["demo"]
        assert not [said for said in on.server.log[asked:] if said.startswith("POST pods")]


@pytest.mark.parametrize("ended", [True, False], ids=["its end was seen", "nobody told of it"])
async def test_nothing_is_made_from_a_copy_of_a_cluster_that_is_long_gone(ended: bool):
    """A late event of it, or a list after a watch that broke off, which tells of no deletion."""
    async with operated() as on:
        await begun(on)
        (body,) = on.clusters()
        on.delete()
        await on.stop_loops()
        for pod in on.pods():
            on.lose(pod)
        asked = len(on.server.log)
        on.begin_late(body, ended=ended)
        async with asyncio.timeout(10):
            await on.tasks["demo"]
        assert not [said for said in on.server.log[asked:] if said.startswith("POST")]
        assert not ended or {said.split()[0] for said in on.server.log[asked:]} == {"GET"}


async def test_a_cluster_whose_end_was_seen_wrongly_is_worked_for_again():
    async with operated() as on:
        await begun(on)
        (body,) = on.clusters()
        await on.stop_loops()
        on.lose("demo-cpu-worker-0")
        on.begin_late(body, ended=True)
        await becomes(on.pods, lambda pods: "demo-cpu-worker-0" in pods)
        assert not on.loop().came_late


def _is_being_deleted(on: Operated) -> None:
    """Somebody deletes the cluster, which a finalizer keeps."""
    path = "/apis/gpudask.dev/v1alpha1/namespaces/default/gpudaskclusters/demo"
    kept = {"deletionTimestamp": "2027-01-15T08:00:00Z", "finalizers": ["example.com/backup"]}
    body = on.server.objects[path]
    on.loop().resource_changed(on.server.put(path, body | {"metadata": body["metadata"] | kept}))


def _is_invalid(on: Operated) -> None:
    path = "/apis/gpudask.dev/v1alpha1/namespaces/default/gpudaskclusters/demo"
    body = on.server.objects[path]
    metadata = body["metadata"] | {"generation": body["metadata"]["generation"] + 1}
    on.loop().resource_changed(on.server.put(path, body | {"metadata": metadata, "spec": {"pools": [{"name": "?"}]}}))


@pytest.mark.parametrize("is_so", [_is_being_deleted, _is_invalid])
async def test_a_cluster_that_gets_no_pods_is_found_to_be_gone_too(is_so):  # noqa: ANN001
    """No creation asks whether it is there, and a list after a watch that broke off tells of no deletion."""
    async with operated() as on:
        await begun(on)
        is_so(on)
        await asyncio.sleep(60)
        assert not on.tasks["demo"].done()
        on.delete()
        _lose_service(on)
        async with asyncio.timeout(60):
            await on.tasks["demo"]


def _lose_service(on: Operated) -> None:
    """The garbage collector deletes a Service of the cluster, and the watch tells."""
    body = on.server.objects.pop("/api/v1/namespaces/default/services/demo-scheduler")
    on.context.dependents["Service"].forget("default", body["metadata"]["uid"])


async def test_objects_beside_the_pods_of_a_cluster_that_is_gone_are_not_made_again():
    """The garbage collector would delete each again and again, where the event of the cluster's deletion is lost."""
    async with operated() as on:
        await begun(on)
        on.delete()
        asked = len(on.server.log)
        _lose_service(on)
        async with asyncio.timeout(10):
            await on.tasks["demo"]
        assert not [said for said in on.server.log[asked:] if said.startswith("PATCH services")]


async def test_one_that_somebody_deletes_is_made_again_after_a_look_at_the_cluster():
    async with operated() as on:
        await begun(on)
        asked = len(on.server.log)
        _lose_service(on)
        await becomes(lambda: on.server.names("services"), ["demo-scheduler"])
        looks = [said for said in on.server.log[asked:] if said == "GET gpudaskclusters demo"]
        assert len(looks) == 1
        assert not on.tasks["demo"].done()


async def test_a_deletion_that_a_starting_server_answers_with_404_leaves_no_ghost():
    async with operated() as on:
        await begun(on)
        loop = on.loop()
        (pod, _) = [pod for pod in on.seen() if pod.pool]
        on.server.fail("DELETE", "/pods/", STARTING, times=1)
        with pytest.raises(Exception, match="404"):
            await loop._reconciler._executor._delete(pod, "a test", only_if_unchanged=False)
        assert pod in on.seen(), "it exists, and so it is seen"
