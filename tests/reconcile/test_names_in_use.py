"""A pod's name that is in use: another one is used, or it is waited for; it is not tried again and again."""

from __future__ import annotations

from gpudask.api import Json

from http import HTTPStatus

import pytest

from gpudask.api.resource import LABEL_CLUSTER
from gpudask.clients.errors import ApiError
from tests.builders import a_manifest, a_pool, a_spec
from tests.planning.builders import stored
from tests.reconcile.fake_api import Bench, FakeApi

KUEUE = "kueue.x-k8s.io/managed"
FIRST, SECOND = "demo-cpu-worker-0", "demo-cpu-worker-1"


@pytest.fixture
async def bench() -> Bench:
    return Bench(FakeApi(), stored(a_manifest(a_pool(replicas=1))))


def size(pods: int) -> Json:
    return a_spec(a_pool(replicas=pods))


async def test_a_pod_that_its_finalizer_keeps_after_our_deletion_keeps_its_name_alone(bench: Bench):
    bench.api.finalizers = [KUEUE]
    await bench.run(1)
    bench.edit(size(0))
    await bench.run(1)
    assert "deletionTimestamp" in bench.api.objects[f"{bench.path}/{FIRST}"]["metadata"]
    bench.api.asked.clear()
    bench.edit(size(1))
    await bench.run(600)
    assert SECOND in bench.names()
    assert (bench.count("POST"), bench.count("GET")) == (1, 0), "the name is known to be in use"


async def test_a_pod_that_its_finalizer_keeps_is_told_once_that_lasts_and_until_it_ends(bench: Bench):
    bench.api.finalizers = [KUEUE]
    await bench.run(1)
    await bench.api.delete_pod("default", FIRST, uid=bench.api.objects[f"{bench.path}/{FIRST}"]["metadata"]["uid"])
    bench.watch()
    bench.now = 1_800_000_000.0 + 50
    await bench.run(1)
    assert bench.condition("Degraded").startswith("False")
    await bench.run(20)
    said = bench.condition("Degraded")
    assert said.startswith("True PodsTerminating: pool cpu: demo-cpu-worker-0 is deleted, but its finalizers keep it")
    assert KUEUE in said
    bench.pods.forget(bench.api.objects.pop(f"{bench.path}/{FIRST}")["metadata"]["uid"])
    await bench.run(20)
    assert bench.condition("Degraded").startswith("False")


async def test_a_pod_whose_node_does_not_confirm_its_end_is_told_once_that_lasts(bench: Bench):
    await bench.run(1)
    there = bench.api.objects[f"{bench.path}/{FIRST}"]
    there["spec"]["nodeName"] = "lost"
    there["metadata"] |= {"deletionTimestamp": "2027-01-15T08:00:00Z", "deletionGracePeriodSeconds": 30}
    bench.api.put(f"{bench.path}/{FIRST}", there)
    bench.watch()
    bench.now = 1_800_000_000.0 + 20
    await bench.run(1)
    assert bench.condition("Degraded").startswith("False")
    await bench.run(180)
    said = bench.condition("Degraded")
    assert said.startswith("True PodsTerminating: pool cpu: demo-cpu-worker-0 is deleted, but its node lost does not")
    assert "kubectl delete node lost" in said


async def test_a_scheduler_pod_that_its_finalizer_keeps_has_a_successor_under_another_name(bench: Bench):
    bench.api.finalizers = [KUEUE]
    await bench.run(1)
    (scheduler,) = [name for name in bench.names() if "scheduler" in name]
    await bench.api.delete_pod(
        "default", scheduler, uid=bench.api.objects[f"{bench.path}/{scheduler}"]["metadata"]["uid"]
    )
    bench.watch()
    bench.now = 1_800_000_000.0 + 5
    await bench.run(120)
    assert len([name for name in bench.names() if "scheduler" in name]) == 2
    assert "PodsTerminating: scheduler: " in bench.condition("Degraded")


async def _without_its_label(bench: Bench) -> None:
    """Our pod goes on, but its label is off: the watch says that it is gone, and it is not."""
    await bench.run(1)
    there = bench.api.objects[f"{bench.path}/{FIRST}"]
    del there["metadata"]["labels"][LABEL_CLUSTER]
    left = bench.api.put(f"{bench.path}/{FIRST}", there)
    bench.pods._drop(left["metadata"]["uid"], left["metadata"]["resourceVersion"])
    bench.api.asked.clear()


async def test_a_pod_of_ours_that_is_not_seen_keeps_its_name_alone(bench: Bench):
    await _without_its_label(bench)
    await bench.run(600)
    assert SECOND in bench.names()
    assert (bench.count("POST"), bench.count("GET")) == (2, 1)


def _told(bench: Bench) -> list[str]:
    """What events said."""
    return [body["note"] for body in bench.api.objects.values() if body["kind"] == "Event"]


async def test_a_name_that_a_pod_of_ours_holds_is_tried_again_and_told_if_that_lasts(bench: Bench):
    words = f"a pod {FIRST} of this cluster exists that is not counted: its label {LABEL_CLUSTER} is missing"
    await _without_its_label(bench)
    await bench.run(60)
    assert not any(words in note for note in _told(bench)), "it might have been going just then"
    bench.edit(size(2))
    await bench.run(60)
    assert any(words in note for note in _told(bench))
    assert [name for name in bench.names() if "worker" in name] == [FIRST, SECOND, "demo-cpu-worker-2"]


async def test_a_name_that_a_pod_of_ours_held_is_used_once_it_is_free(bench: Bench):
    await _without_its_label(bench)
    await bench.run(60)
    del bench.api.objects[f"{bench.path}/{FIRST}"]
    bench.edit(size(2))
    await bench.run(60)
    assert [name for name in bench.names() if "worker" in name] == [FIRST, SECOND]


class Stubborn(FakeApi):
    """Every creation of a worker pod conflicts, and there is none; deletions say that the pod changed."""

    def _post(self, path: str, body: Json, *, dry_run: bool) -> Json:
        if "worker" in body["metadata"]["name"] and not dry_run:
            raise ApiError(HTTPStatus.CONFLICT, "Conflict", "the quota changed", path)
        return super()._post(path, body, dry_run=dry_run)


async def test_creations_that_conflict_for_ever_come_ever_slower():
    bench = Bench(Stubborn(), stored(a_manifest(a_pool(replicas=20))))
    await bench.run(3600)
    assert 5 < bench.count("POST") < 250


async def test_a_cluster_whose_creations_conflict_goes_on_when_they_no_longer_do(monkeypatch: pytest.MonkeyPatch):
    bench = Bench(Stubborn(), stored(a_manifest(a_pool(replicas=3))))
    await bench.run(3600)
    monkeypatch.setattr(Stubborn, "_post", FakeApi._post)
    await bench.run(31)
    assert [name for name in bench.names() if "worker" in name] == [f"demo-cpu-worker-{n}" for n in range(3)]


async def test_names_that_are_all_somebody_elses_are_asked_for_ever_slower(bench: Bench):
    for number in range(500):
        name = f"demo-cpu-worker-{number}"
        bench.api.put(f"{bench.path}/{name}", {"kind": "Pod", "metadata": {"name": name, "namespace": "default"}})
    await bench.run(600)
    assert 5 < bench.count("POST") < 40
    assert "NameConflict" in bench.condition("Degraded")


class Unwilling(FakeApi):
    """A deletion says that the pod changed meanwhile, always."""

    def _delete(self, path: str, _there: Json) -> Json:
        raise ApiError(HTTPStatus.CONFLICT, "Conflict", "the pod changed", path)


async def test_deletions_that_meet_a_changed_pod_for_ever_come_ever_slower():
    bench = Bench(Unwilling(), stored(a_manifest(a_pool(replicas=1))))
    await bench.run(1)
    bench.edit(size(0))
    await bench.run(3600)
    assert 5 < bench.count("DELETE") < 200


class Mangling(FakeApi):
    """Pods come back as nothing that can be read."""

    def put(self, path: str, body: Json) -> Json:
        made = super().put(path, body)
        return made | {"status": "mangled"} if body["kind"] == "Pod" else made


async def test_pods_that_cannot_be_read_are_not_made_again_and_again():
    bench = Bench(Mangling(), stored(a_manifest(a_pool(replicas=1))))
    await bench.run(3600)
    assert len(bench.names()) < 40
