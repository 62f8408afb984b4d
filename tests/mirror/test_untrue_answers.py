"""An answer that is not true, once for each kind of write for the mirror: it is tried again, as nothing has changed.

No watch event comes that would have it tried again, and the slow resync is too late.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gpudask.api import Json
from gpudask.api.resource import API_VERSION, JOB_KIND, KIND
from gpudask.clients.reflector import Caches, Reflector
from gpudask.mirror import objects
from gpudask.mirror.definitions import Definitions
from gpudask.mirror.serving import Serving
from gpudask.mirror.state import observe_mirror
from tests.builders import a_manifest, a_pool
from tests.clients.fake_api_server import BUSY, UNTRUE, Answer
from tests.reconcile.in_memory import Operated, becomes, operated
from tests.virtual_time import VirtualPolicy

SECONDS = 90.0  # the resync, which finds everything, comes after 600
# Until then the API server is busy: all else has been written, so that nothing but the answer can cause another try.
REST_SECONDS = 5.0
STOCK = "/apis/kubernetes.dask.org/v1/namespaces/default"
OURS = "/apis/gpudask.dev/v1alpha1/namespaces/default/gpudaskclusters/demo"
POOLS = a_pool("cpu", replicas=1), a_pool("gpu", gpu={}, replicas=1)
Look = Callable[[], Any]


@pytest.fixture(scope="module")
def event_loop_policy() -> VirtualPolicy:
    """Back-offs pass at once."""
    return VirtualPolicy()


class Mirrored:
    """Operated clusters with a mirror."""

    def __init__(self, on: Operated) -> None:
        self.on, self.server = on, on.server
        on.definitions = self.definitions = Definitions({kind: self._caches(kind) for kind in objects.KINDS})

    def _caches(self, kind: str) -> Caches:
        path, reduce = f"{STOCK}/{kind.lower()}s", observe_mirror(kind)
        reflector: Reflector[Any] = Reflector(self.server, path, label="", reduce=reduce, on_change=self._changed)
        reflector.synced.set()
        return Caches([reflector])

    def _changed(self, key: str) -> None:
        if key == "default/demo" and self.on.tasks:
            self.on.loop().wake()

    def there(self, kind: str, name: str) -> Json:
        return self.server.objects.get(f"{STOCK}/{kind.lower()}s/{name}", {})

    def put(self, kind: str, body: Json) -> None:
        """An object is so now, and the watch tells."""
        path = f"{STOCK}/{kind.lower()}s/{body['metadata']['name']}"
        self.definitions.caches[kind].upsert("default", self.server.put(path, body))

    async def settled(self) -> None:
        """The mirror of a cluster is there."""
        self.on.apply(*POOLS)
        await becomes(lambda: self.size("demo-gpu"), 1)
        await asyncio.sleep(2)

    def size(self, group: str) -> int | None:
        found = self.there(objects.WORKER_GROUP, group)
        return found["spec"]["worker"]["replicas"] if found else None

    def edit(self, *pools: Json) -> None:
        there = self.server.objects[OURS]
        edited = there | {"metadata": there["metadata"] | {"generation": 2}, "spec": a_manifest(*pools)["spec"]}
        self.on.loop().resource_changed(self.server.put(OURS, edited))


@pytest.fixture
async def mirrored() -> AsyncIterator[Mirrored]:
    async with operated(random=lambda: 0.5) as on:
        yield Mirrored(on)


async def creation(mirrored: Mirrored) -> Look:
    mirrored.on.apply(*POOLS)
    return lambda: bool(mirrored.there(objects.CLUSTER, "demo"))


async def another_size(mirrored: Mirrored) -> Look:
    await mirrored.settled()
    mirrored.edit(POOLS[0] | {"replicas": 3}, POOLS[1])
    return lambda: mirrored.size("demo-cpu") == 3


async def one_pool_less(mirrored: Mirrored) -> Look:
    await mirrored.settled()
    mirrored.edit(POOLS[0])
    return lambda: not mirrored.there(objects.WORKER_GROUP, "demo-gpu")


async def scaled_by_somebody(mirrored: Mirrored) -> Look:
    await mirrored.settled()
    there = mirrored.there(objects.WORKER_GROUP, "demo-gpu")
    mirrored.put(objects.WORKER_GROUP, there | {"spec": there["spec"] | {"worker": {"replicas": 4}}})
    return lambda: [item["replicas"] for item in mirrored.server.objects[OURS]["spec"].get("overrides", ())] == [4]


async def deleted_by_somebody(mirrored: Mirrored) -> Look:
    await mirrored.settled()
    caches = mirrored.definitions.caches[objects.CLUSTER]
    (item,) = caches.owned("default/demo")
    del mirrored.server.objects[f"{STOCK}/daskclusters/demo"]
    mirrored.on.loop().mirror.deleted(item)
    caches.forget("default", item.uid)
    return lambda: OURS not in mirrored.server.objects


def stock_object(kind: str, **metadata: Any) -> Json:
    """What somebody made, and the stock operator never saw."""
    named = {"name": "demo", "namespace": "default", "uid": "stock-1"}
    spec: Json = {"scheduler": {}} if kind == objects.CLUSTER else {"job": {}, "cluster": {}}
    return {"apiVersion": objects.API_VERSION, "kind": kind, "metadata": named | metadata, "spec": spec}


def owned(kind: str) -> Json:
    """Metadata of what an object of ours owns that is gone."""
    return {"ownerReferences": [{"apiVersion": API_VERSION, "kind": kind, "name": "demo", "uid": "gone"}]}


ENDING = {"deletionTimestamp": "2027-01-01T00:00:00Z", "finalizers": ["kopf.zalando.org/KopfFinalizerMarker"]}
# what is there, and what becomes true of it; the method and a part of the path
SERVED = {
    "end of a cluster": (stock_object(objects.CLUSTER, **owned(KIND)), "DELETE", "/daskclusters/"),
    "end of a job": (stock_object(objects.JOB, **owned(JOB_KIND)), "DELETE", "/daskjobs/"),
    "finalizer": (stock_object(objects.CLUSTER, **ENDING), "PATCH", "/daskclusters/"),
}


@pytest.mark.parametrize("answer", UNTRUE.values(), ids=UNTRUE)
@pytest.mark.parametrize("write", SERVED)
async def test_so_is_one_for_what_somebody_made(write: str, answer: Answer, mirrored: Mirrored):
    body, method, path = SERVED[write]
    untrue = mirrored.server.fail(method, path, answer, times=1)
    mirrored.put(body["kind"], body)
    serving = Serving(mirrored.on.context, mirrored.definitions, lambda _: None, lambda _: None)
    task = asyncio.create_task(serving.run())
    try:
        await becomes(
            lambda: mirrored.there(body["kind"], "demo").get("metadata", {}).get("finalizers"),
            lambda found: not found and untrue.met,
            seconds=SECONDS,
        )
        if method == "DELETE":
            await becomes(lambda: mirrored.there(body["kind"], "demo"), {}, seconds=SECONDS)
    finally:
        task.cancel()
        await asyncio.wait([task])


# what is there, the kind of ours that serves it, and its resource
DELETED_WITH = {
    "cluster": (stock_object(objects.CLUSTER, **owned(KIND)), KIND, "gpudaskclusters"),
    "job": (stock_object(objects.JOB, **owned(JOB_KIND)), JOB_KIND, "gpudaskjobs"),
}


@pytest.mark.parametrize("served", DELETED_WITH)
async def test_what_somebody_made_is_not_deleted_for_one_answer_that_its_object_is_gone(
    served: str, mirrored: Mirrored
):
    body, kind, plural = DELETED_WITH[served]
    ours = f"/apis/{API_VERSION}/namespaces/default/{plural}/demo"
    metadata = {"name": "demo", "namespace": "default", "uid": "gone"}
    mirrored.server.put(ours, {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": {}})
    untrue = mirrored.server.fail("GET", f"/{plural}/demo", UNTRUE["not found"], times=1)
    mirrored.put(body["kind"], body)
    serving = Serving(mirrored.on.context, mirrored.definitions, lambda _: None, lambda _: None)
    task = asyncio.create_task(serving.run())
    try:
        await becomes(lambda: untrue.met, 1, seconds=SECONDS)
        for _ in range(3):
            serving.wake("default/demo")
            await asyncio.sleep(REST_SECONDS)
            assert mirrored.there(body["kind"], "demo")
        del mirrored.server.objects[ours]
        serving.wake("default/demo")
        await becomes(lambda: mirrored.there(body["kind"], "demo"), {}, seconds=SECONDS)
    finally:
        task.cancel()
        await asyncio.wait([task])


# what has it written, and gives what becomes true; the method and a part of the path
WRITES = {
    "creation": (creation, "POST", "/daskclusters"),
    "size": (another_size, "PATCH", "/daskworkergroups/"),
    "deletion": (one_pool_less, "DELETE", "/daskworkergroups/"),
    "overrides": (scaled_by_somebody, "PATCH", "/gpudaskclusters/demo"),
    "deletion of the cluster": (deleted_by_somebody, "DELETE", "/gpudaskclusters/"),
}


@pytest.mark.parametrize("answer", UNTRUE.values(), ids=UNTRUE)
@pytest.mark.parametrize("write", WRITES)
async def test_a_write_that_got_an_untrue_answer_is_tried_again(write: str, answer: Answer, mirrored: Mirrored):
    act, method, path = WRITES[write]
    server = mirrored.server
    busy = server.fail(method, path, BUSY)
    untrue = server.fail(method, path, answer, times=1)
    look = await act(mirrored)
    await asyncio.sleep(REST_SECONDS)
    assert not look()
    server.mend(busy)
    await becomes(look, bool, seconds=SECONDS)
    assert untrue.met == 1


async def test_what_somebody_deleted_is_not_forgotten_before_its_event_comes(mirrored: Mirrored):
    """Who deletes an object means something by it, which that event tells alone."""
    await mirrored.settled()
    gone = [
        mirrored.server.fail(method, "/daskworkergroups/demo-cpu", UNTRUE["not found"]) for method in ("PATCH", "GET")
    ]
    mirrored.edit(POOLS[0] | {"replicas": 3}, POOLS[1])
    await becomes(lambda: [fault.met for fault in gone], all, seconds=SECONDS)
    await asyncio.sleep(REST_SECONDS)
    kept = mirrored.definitions.caches[objects.WORKER_GROUP].owned("default/demo")
    assert "demo-cpu" in {item.name for item in kept}
