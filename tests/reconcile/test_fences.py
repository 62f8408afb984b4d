"""What a former leader may still do: nothing, or nothing that undoes what the next leader did."""

from __future__ import annotations

from gpudask.api import Json

from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest

from gpudask.api.resource import Identity
from gpudask.clients.transport import ApiServer
from gpudask.clients.errors import ApiError, SchedulerError
from gpudask.clients.scheduler import SchedulerClient
from gpudask.planning.actions import DeletePod
from gpudask.reconcile.executor import Executor
from gpudask.reconcile.loop_memory import Memory
from gpudask.reconcile.reconciler import Reconciler
from gpudask.reconcile.status import StatusWriter
from gpudask.reconcile.served_schema import ServedSchema
from gpudask.reconcile.resource_copy import Change, ResourceCopy
from tests.builders import a_manifest, a_pool
from tests.planning import builders
from tests.planning.builders import cluster, stored


class Answered(ApiServer):
    """An API server that answers everything with an empty object."""

    def __init__(self) -> None:
        self._queue: Any = SimpleNamespace(slot=lambda **_: SlowStart(self))
        self.may_write = lambda: True
        self.sent: list[str] = []
        self.loses_the_lead_while_waiting = False

    async def _send(self, method: str, *_: Any, **__: Any) -> Any:
        self.sent.append(method)

        async def read() -> bytes:
            return b"{}"

        return SimpleNamespace(status=HTTPStatus.OK, read=read, headers={})


class SlowStart:
    """A queue of requests, in which the lead may be lost."""

    def __init__(self, api: Answered) -> None:
        self._api = api

    async def __aenter__(self) -> None:
        if self._api.loses_the_lead_while_waiting:
            self._api.may_write = lambda: False

    async def __aexit__(self, *_: object) -> None:
        """Nothing is held."""


async def test_who_does_not_lead_reads_and_writes_nothing():
    api = Answered()
    api.may_write = lambda: False
    await api.request("GET", "/x")
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        with pytest.raises(ApiError, match="another operator acts") as caught:
            await api.request(method, "/x")
        assert caught.value.status == 0, "to be tried again, by whoever leads"
    assert api.sent == ["GET"]


async def test_a_write_that_waited_while_the_lead_was_lost_is_not_sent():
    api = Answered()
    api.loses_the_lead_while_waiting = True
    with pytest.raises(ApiError, match="another operator acts"):
        await api.request("POST", "/x")
    assert api.sent == []


async def test_who_does_not_lead_tells_no_scheduler_what_is_wanted():
    client = SchedulerClient(lambda: False)
    with pytest.raises(SchedulerError, match="another operator acts"):
        await client.desire("http://127.0.0.1:1", "token", {})


class Pods:
    """A pod on the API server that somebody changed since our cache saw it, and the cache."""

    def __init__(self, there: Json | None) -> None:
        self.there = there
        self.deletions: list[tuple[str, str | None]] = []
        self.upserted: list[Json] = []
        self.forgotten: list[str] = []

    async def delete_pod(self, _namespace: str, _name: str, *, uid: str, version: str | None, **_: bool) -> Json:
        self.deletions.append((uid, version))
        raise ApiError(409, "Conflict", "", "DELETE pod")

    async def get_pod(self, _namespace: str, _name: str) -> Json:
        if self.there is None:
            raise ApiError(404, "NotFound", "", "GET pod")
        return self.there

    def upsert(self, _namespace: str, body: Json) -> None:
        self.upserted.append(body)

    def forget(self, _namespace: str, uid: str) -> None:
        self.forgotten.append(uid)


C = cluster(a_pool())


async def deleted(pods: Pods, pod: Any) -> bool:
    context: Any = SimpleNamespace(api=pods, pods=pods, clock=lambda: 0.0, recheck_seconds=0.0)
    (work,) = Executor(context, Memory()).work(C, (DeletePod(pod, "its drain is over"),)).values()
    return await work()


async def test_a_running_pod_that_changed_since_is_not_deleted_but_looked_at():
    pod = builders.pod(C, "cpu")
    there = {"metadata": {"uid": pod.uid, "resourceVersion": "99"}}
    pods = Pods(there)
    assert await deleted(pods, pod), "another pass decides anew"
    assert pods.deletions == [(pod.uid, pod.version)]
    assert pods.upserted == [there], "also where the watch is behind: else that pass would try the same again"


@pytest.mark.parametrize("there", [None, {"metadata": {"uid": "another", "resourceVersion": "99"}}])
async def test_a_pod_that_is_gone_or_another_by_now_is_forgotten(there: Json | None):
    pod = builders.pod(C, "cpu")
    pods = Pods(there)
    assert await deleted(pods, pod)
    assert pods.forgotten == [pod.uid]
    assert pods.upserted == []


class Clusters:
    """The resource on the API server, which another operator wrote last."""

    def __init__(self, body: Json) -> None:
        self.body = body
        self.versions: list[str] = []

    async def write_status(self, *_: str, version: str, **__: Any) -> Json:
        self.versions.append(version)
        if version != self.body["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "", "PATCH status")
        self.body = self.body | {"metadata": self.body["metadata"] | {"resourceVersion": str(int(version) + 1)}}
        return self.body

    async def get_cluster(self, *_: str) -> Json:
        return self.body


class Loop:
    def __init__(self, copy: ResourceCopy) -> None:
        self.copy = copy
        self.wakes = 0
        self.bodies: list[Json] = []

    def wake(self) -> None:
        self.wakes += 1

    def resource_changed(self, body: Json) -> None:
        self.bodies.append(body)
        self.copy.update(body)


def at(version: str, gpu_seconds: float) -> Json:
    body = stored(a_manifest(a_pool("gpu", gpu={})))
    pools = [{"name": "gpu", "gpuSecondsHeld": gpu_seconds}]
    metadata = body["metadata"] | {"resourceVersion": version}
    return body | {"metadata": metadata, "status": {"phase": "Running", "pools": pools}}


async def test_a_status_that_another_operator_wrote_is_gone_on_from_and_not_written_over():
    ours, theirs = at("7", 100.0), at("9", 250.0)
    api = Clusters(theirs)
    context: Any = SimpleNamespace(api=api, clock=lambda: 0.0, schema=ServedSchema())
    copy = ResourceCopy(context, ours)
    loop: Any = Loop(copy)
    passes = object.__new__(Reconciler)
    passes._copy, passes._loop, passes._status_writer = copy, loop, StatusWriter(context, copy)
    identity = Identity(ours["metadata"]["name"], ours["metadata"]["namespace"], ours["metadata"]["uid"])

    async def write() -> None:
        await passes._status_writer._send(identity, passes._status_writer.status, 0.0)

    await passes._write_status(write())
    assert api.body is theirs, "it stands as they wrote it"
    assert loop.wakes == 1, "another pass follows at once"
    assert loop.bodies == [theirs]
    assert passes._status_writer.status.pools[0].gpu_seconds_held == 250.0
    await passes._write_status(write())
    await passes._write_status(write())
    assert api.versions == ["7", "9", "10"], "our own writes are known before the watch tells"


@pytest.mark.parametrize(("copies", "version"), [(["9"], "9"), (["9", "8"], "9"), (["10", "11"], "11")])
def test_word_of_an_older_version_that_comes_late_is_no_newer_one(copies: list[str], version: str):
    context: Any = SimpleNamespace(clock=lambda: 0.0)
    copy = ResourceCopy(context, at("7", 0))
    for number in copies:
        copy.update(at(number, 0))
    assert copy.version == version


@pytest.mark.parametrize(("comes", "news"), [("6", False), ("7", False), ("8", True)])
def test_a_status_that_came_after_our_last_write_is_news(comes: str, news: bool):
    context: Any = SimpleNamespace(clock=lambda: 0.0)
    copy = ResourceCopy(context, at("1", 0))
    copy.status_written(at("7", 0))
    copy.update(at(comes, 0))
    assert copy.status_is_newer is news


async def test_an_answer_that_an_event_has_overtaken_is_looked_up():
    """As that of the mirror's own edit, after a label that somebody set: no event would bring the label back."""
    labelled = at("9", 0)
    labelled["metadata"] = labelled["metadata"] | {"labels": {"team": "vision"}}
    context: Any = SimpleNamespace(clock=lambda: 0.0, api=Clusters(labelled))
    copy = ResourceCopy(context, at("7", 0))
    assert copy.update(labelled) is Change.NONE
    assert copy.update(at("8", 0)) is Change.OLDER
    assert copy.body is labelled
    assert copy.update(await copy.refresh()) is Change.NONE
    assert (copy.body is labelled, copy.has_older) == (True, False)


async def test_a_status_that_was_looked_up_is_news_too():
    context: Any = SimpleNamespace(clock=lambda: 0.0, api=Clusters(at("9", 250.0)))
    copy = ResourceCopy(context, at("7", 0))
    await copy.refresh()
    assert (copy.version, copy.status_is_newer) == ("9", True)
    await copy.refresh()
    copy.status_is_newer = False
    await copy.refresh()
    assert not copy.status_is_newer
