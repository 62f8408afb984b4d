"""Clusters are kept all the time, and have loops only while this operator leads and has their namespace's caches."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import time
import weakref
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from gpudask.api.resource import Identity
from gpudask.history.unfinished import GonePods, LastStatus
from gpudask.planning.ledger.counting import Ledger
from gpudask.planning.ledger.takeover import Arrival
from gpudask.reconcile import loop as module
from gpudask.reconcile.loop_memory import OwnCount
from gpudask.reconcile.loop import Registry
from gpudask.reconcile.supervisor import Supervisor


class Record:
    """A cluster's record that does nothing but say how it was ended."""

    ended: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self.is_closed = False

    async def close(self) -> None:
        self.ended.append((self._uid, "closed"))
        self.is_closed = True

    def inherit(self, *_: Any) -> None:
        pass

    async def stop(self) -> None:
        self.ended.append((self._uid, "stopped"))

    def pod_gone(self, *_: Any) -> None:
        pass


class Loop:
    """A cluster's loop that does nothing but say which copies it saw, until it is told to end."""

    running: ClassVar[list[Loop]] = []

    def __init__(self, _context: Any, body: Json, _definitions: Any) -> None:
        self.copies = [body["metadata"]["resourceVersion"]]
        self.uid = body["metadata"]["uid"]
        self.over = asyncio.Event()
        self.record = Record(self.uid)
        self.last_count: OwnCount | None = None
        self.inherited: Arrival | None = None
        self.own: OwnCount | None = None
        self.doubts: list[bool] = []  # of its copy, each as `ended`
        self.came_late = False

    def doubt_copy(self, *, ended: bool) -> None:
        self.doubts.append(ended)
        self.came_late = ended

    def resource_changed(self, body: Json) -> None:
        self.copies.append(body["metadata"]["resourceVersion"])

    def inherit(self, came: Arrival | None, own: OwnCount | None, _gone: Any) -> None:
        self.inherited, self.own = came, own

    def pod_gone(self, *_: Any) -> None:
        pass

    async def run(self) -> None:
        Loop.running.append(self)
        try:
            await self.over.wait()
        finally:
            Loop.running.remove(self)


@pytest.fixture(autouse=True)
def loops(monkeypatch: pytest.MonkeyPatch) -> list[Loop]:
    Loop.running, Record.ended = [], []
    monkeypatch.setattr(module, "ClusterLoop", Loop)
    return Loop.running


def body(uid: str, version: int = 1, namespace: str = "team") -> Json:
    return {"metadata": {"uid": uid, "name": uid, "namespace": namespace, "resourceVersion": str(version)}}


def context(*known: str) -> Any:
    pods = SimpleNamespace(owned=lambda _: ())
    return SimpleNamespace(
        knows=lambda namespace: namespace in known,
        supervisor=Supervisor(),
        pods=pods,
        clock=time.monotonic,
        events=SimpleNamespace(forget=lambda _: None),
        records=None,
        api=None,
        random=lambda: 0.0,
    )


async def acting() -> list[str]:
    for _ in range(3):
        await asyncio.sleep(0)
    return sorted(loop.uid for loop in Loop.running)


async def test_a_standby_acts_on_nothing_and_begins_with_the_newest_copy():
    registry = Registry()
    registry.cluster_changed(body("a", 1))
    registry.cluster_changed(body("a", 2))
    registry.cluster_changed(body("b"))
    assert await acting() == []
    registry.lead(context("team"))
    assert await acting() == ["a", "b"]
    assert [loop.copies for loop in Loop.running if loop.uid == "a"] == [["2"]]


async def test_who_leads_no_more_acts_on_nothing_and_may_lead_again():
    registry = Registry()
    registry.lead(context("team"))
    registry.cluster_changed(body("a", 1))
    assert await acting() == ["a"]
    await registry.stand_by()
    assert await acting() == []
    registry.cluster_changed(body("a", 2))
    registry.cluster_changed(body("b", 3))
    assert await acting() == []
    registry.lead(context("team"))
    assert await acting() == ["a", "b"]
    assert [loop.copies for loop in Loop.running if loop.uid == "a"] == [["2"]]


async def test_what_was_deleted_meanwhile_is_not_acted_on():
    registry = Registry()
    registry.cluster_changed(body("a"))
    registry.cluster_deleted(body("a")["metadata"])
    registry.lead(context("team"))
    assert await acting() == []


async def test_a_loop_that_ended_by_itself_is_begun_by_the_next_copy_alone():
    registry = Registry()
    registry.lead(context("team"))
    registry.cluster_changed(body("a"))
    await acting()
    Loop.running[0].over.set()
    await acting()
    registry.start_loops()
    assert await acting() == [], "as far as we know it is gone"
    registry.cluster_changed(body("a", 2))
    assert await acting() == ["a"]


async def test_a_loop_that_begins_with_a_copy_that_was_kept_looks_whether_there_is_such_a_cluster():
    """A list after a watch that broke off tells of no deletion: who stood by meanwhile knows clusters that are gone."""
    registry = Registry()
    registry.cluster_changed(body("kept"))
    registry.lead(context("team"))
    registry.cluster_changed(body("new"))
    await acting()
    assert {loop.uid: loop.doubts for loop in Loop.running} == {"kept": [False], "new": []}


async def test_a_late_event_of_a_cluster_that_was_found_gone_brings_nothing_back(monkeypatch: pytest.MonkeyPatch):
    """Its end stays as it was first seen, and the record is that of the loop which saw it."""
    now = [1000.0]
    registry = Registry(lambda: now[0])
    closing = asyncio.Event()

    async def close(self: Record) -> None:
        self.ended.append((self._uid, "closes"))
        await closing.wait()

    monkeypatch.setattr(Record, "close", close)
    registry.lead(context("team"))
    registry.cluster_changed(body("a"))
    await acting()
    Loop.running[0].over.set()  # it found that out
    await acting()
    now[0] += 5.0
    registry.cluster_changed(body("a", 2))
    await acting()
    assert Loop.running[0].doubts == [True]
    Loop.running[0].over.set()
    await acting()
    assert registry.find("team", "a") is None
    assert Record.ended == [("a", "closes"), ("a", "stopped")]
    assert registry._last["team/a"].ended == 1000.0
    closing.set()


async def test_a_cluster_that_a_backup_brings_back_has_another_end():
    now = [1000.0]
    registry = Registry(lambda: now[0])
    registry.lead(context("team"))
    registry.cluster_changed(body("a"))
    await acting()
    registry.cluster_deleted(body("a")["metadata"])
    await acting()
    now[0] += 500.0
    registry.cluster_changed(body("a", 2))
    await acting()
    (again,) = Loop.running
    again.came_late = False  # the API server has it
    registry.cluster_deleted(body("a")["metadata"])
    await acting()
    assert Record.ended == [("a", "closed"), ("a", "closed")]


async def test_a_namespace_whose_caches_are_not_filled_waits_alone():
    registry = Registry()
    known = ["team"]
    knowing = context()
    knowing.knows = lambda namespace: namespace in known
    registry.lead(knowing)
    registry.cluster_changed(body("a"))
    registry.cluster_changed(body("b", namespace="lost"))
    assert await acting() == ["a"]
    known.append("lost")
    registry.start_loops()
    assert await acting() == ["a", "b"]


async def test_a_deleted_cluster_ends_its_loop():
    registry = Registry()
    registry.lead(context("team"))
    registry.cluster_changed(body("a"))
    assert await acting() == ["a"]
    registry.cluster_deleted(body("a")["metadata"])
    assert await acting() == []


async def test_a_record_is_closed_where_its_cluster_is_gone_and_left_to_others_where_not():
    registry = Registry()
    registry.lead(context("team"))
    for uid in ("deleted", "ended", "stays"):
        registry.cluster_changed(body(uid))
    assert await acting() == ["deleted", "ended", "stays"]
    registry.cluster_deleted(body("deleted")["metadata"])
    next(loop for loop in Loop.running if loop.uid == "ended").over.set()
    await acting()
    await registry.stand_by()
    assert sorted(Record.ended) == [("deleted", "closed"), ("ended", "closed"), ("stays", "stopped")]


class GonePod:
    """A pod of the cluster `uid` that does not exist any more."""

    def __init__(self, uid: str, name: str = "pod") -> None:
        self.owner = f"team/{uid}"
        self.uid = name


async def test_of_a_cluster_that_is_gone_no_pod_is_kept_once_its_record_is_closed(monkeypatch: pytest.MonkeyPatch):
    written = asyncio.Event()

    async def close(record: Record) -> None:
        await written.wait()
        record.is_closed = True

    monkeypatch.setattr(Record, "close", close)
    registry = Registry()
    registry.lead(context("team"))
    registry.cluster_changed(body("gone"))
    assert await acting() == ["gone"]
    during, after = GonePod("gone"), GonePod("gone")
    registry.cluster_deleted(body("gone")["metadata"])
    assert await acting() == []
    registry.pod_gone(during)  # type: ignore[arg-type]
    written.set()
    await acting()
    registry.pod_gone(after)  # type: ignore[arg-type]
    kept = [weakref.ref(during), weakref.ref(after)]
    del during, after
    assert [pod() for pod in kept] == [None, None]


class Anew:
    """A record that is gone on with."""

    told: ClassVar[list[tuple[list[str], LastStatus | None]]] = []

    def __init__(self, *_: Any) -> None:
        self.is_closed = True

    async def close_anew(self, gone: Any, _keep_seconds: float | None, last: LastStatus | None) -> None:
        self.told.append(([pod.uid for pod, _ in gone], last))


async def test_the_end_that_nobody_wrote_is_written_though_a_late_event_had_begun_the_cluster_once_more(
    monkeypatch: pytest.MonkeyPatch,
):
    """Who saw it go led no more before all was written, and leads again."""
    monkeypatch.setattr(module, "ClusterRecord", Anew)
    monkeypatch.setattr(Anew, "told", [])

    async def never(_self: Record) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Record, "close", never)
    monkeypatch.setattr(module, "_CLOSING_SECONDS", 0.01)
    now = [1000.0]
    registry = Registry(lambda: now[0])
    registry.lead(context("team"))
    registry.cluster_changed(body("a"))
    await acting()
    Loop.running[0].over.set()  # it found that out
    await acting()
    await registry.stand_by()
    registry.cluster_changed(body("a", 2))  # late
    now[0] += 5.0
    registry.lead(context("team"))
    await acting()
    assert Anew.told == [], "it may be there"
    Loop.running[0].over.set()
    await acting()
    await acting()
    assert [last.name for _, last in Anew.told if last is not None] == ["a"]


@pytest.mark.parametrize(("seconds", "told"), [(80.0, [["pod"]]), (100.0, [])], ids=["just before", "long ago"])
async def test_a_cluster_that_went_just_before_is_told_of_as_soon_as_one_leads(
    seconds: float, told: list[list[str]], monkeypatch: pytest.MonkeyPatch
):
    """Who led may have died with its end on its hands, and who knows it now may die before the next sweep."""
    monkeypatch.setattr(module, "ClusterRecord", Anew)
    monkeypatch.setattr(Anew, "told", [])
    now = [1000.0]
    registry = Registry(lambda: now[0])
    registry.lead(context("team"))
    registry.cluster_changed(body("stays"))
    assert await acting() == ["stays"]
    await registry.stand_by()
    registry.cluster_deleted(body("stays")["metadata"])  # while nobody leads
    registry.pod_gone(GonePod("stays", "pod"))  # type: ignore[arg-type]
    now[0] += seconds
    registry.lead(context("team"))
    assert registry.knows_more(Identity("stays", "team", "stays")) == (not told)
    await acting()
    assert [gone for gone, _ in Anew.told] == told
    assert not told or Anew.told[0][1].name == "stays"  # type: ignore[union-attr]


@pytest.mark.parametrize(("told", "inherited"), [("18:00:05", 5.0), ("18:00:09", 60.0)], ids=["its own", "another's"])
async def test_a_leader_that_was_frozen_knows_when_and_what_it_counted_though_it_hears_of_that_late(
    told: str, inherited: float, monkeypatch: pytest.MonkeyPatch
):
    now = [0.0]
    registry, here = Registry(lambda: now[0]), context("team")
    here.clock = lambda: 1000.0 + now[0]
    registry.cluster_changed(body("a") | {"status": {"countedAt": "18:00:00"}})
    registry.lead(here)
    await acting()
    own = Loop.running[0].last_count = OwnCount("18:00:05", 1005.0, Ledger(1006.0))
    now[0] = 60.0
    await registry.stand_by()
    registry.cluster_changed(body("a", 2) | {"status": {"countedAt": told}})
    registry.lead(here)
    await acting()
    assert (came := Loop.running[0].inherited) is not None
    assert came.at == 1000.0 + inherited
    assert Loop.running[0].own is own


@pytest.mark.parametrize("leads", [False, True])
async def test_a_cluster_that_goes_before_its_pods_are_known_is_told_of_when_they_are(
    leads: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "ClusterRecord", Anew)
    monkeypatch.setattr(Anew, "told", [])
    registry, here = Registry(), context()
    registry.cluster_changed(body("goes"))
    if leads:
        registry.lead(here)
    registry.cluster_deleted(body("goes")["metadata"])
    registry.lead(here)
    await acting()
    assert not Anew.told
    here.knows = lambda _: True
    registry.start_loops()
    await acting()
    assert len(Anew.told) == 1


@pytest.mark.parametrize("ends_by_itself", [False, True])
async def test_what_a_loop_has_seen_is_known_though_another_operator_has_to_tell(
    ends_by_itself: bool, monkeypatch: pytest.MonkeyPatch
):
    """Frozen for a while it notices its pods' ends, the cluster's, and that it leads no more, all at once."""
    monkeypatch.setattr(Record, "close", Record.stop)  # it cannot be written
    monkeypatch.setattr(module, "ClusterRecord", Anew)
    monkeypatch.setattr(Anew, "told", [])
    registry, cluster = Registry(), Identity("ends", "team", "ends")
    registry.lead(context("team"))
    registry.cluster_changed(body("ends") | {"status": {"countedAt": "2026-12-01T18:00:00.000Z"}})
    await acting()
    registry.pod_gone(GonePod("ends", "first"))  # type: ignore[arg-type]
    registry.cluster_changed(body("ends", 2) | {"status": {"countedAt": "2026-12-01T18:00:05.000Z"}})
    registry.pod_gone(GonePod("ends", "second"))  # type: ignore[arg-type]
    if ends_by_itself:
        Loop.running[0].over.set()
        await acting()
        await registry.stand_by()
    else:
        await registry.stand_by()
        registry.cluster_deleted(body("ends")["metadata"])
    registry.lead(context("team"))
    await acting()
    assert not registry.knows_more(cluster)
    ((gone, last),) = Anew.told
    assert gone == ["first", "second"], "the status may have been on its way while the first went"
    assert last is not None
    assert last.body["status"]["countedAt"] == "2026-12-01T18:00:05.000Z"


def test_of_many_pods_that_are_gone_those_stay_whose_cluster_has_few():
    gone = GonePods(at_most=3)
    for number in range(9):
        gone.add(GonePod("busy", f"busy-{number}"), float(number))  # type: ignore[arg-type]
        if number == 1:
            gone.add(GonePod("calm", "calm"), 1.0)  # type: ignore[arg-type]
    assert [(pod.uid, at) for pod, at in gone.of("team/busy")] == [("busy-7", 7.0), ("busy-8", 8.0)]
    assert [pod.uid for pod, _ in gone.of("team/calm")] == ["calm"]
    gone.forget("team/busy", until=7.0)
    assert [pod.uid for pod, _ in gone.of("team/busy")] == ["busy-8"]
    gone.forget("team/busy")
    gone.forget("team/calm")
    assert not gone.of("team/busy")
    assert not gone.of("team/calm")


async def test_a_name_is_that_of_the_cluster_that_has_it_now():
    registry = Registry()
    first, second = body("first"), body("second")
    first["metadata"]["name"] = second["metadata"]["name"] = "demo"
    registry.cluster_changed(first)
    registry.cluster_changed(second)
    registry.cluster_deleted(first["metadata"])
    assert registry.find("team", "demo") == second
    registry.cluster_deleted(second["metadata"])
    assert registry.find("team", "demo") is None


async def test_an_answer_that_an_event_has_overtaken_brings_nothing_back():
    registry = Registry()
    registry.cluster_written(body("a", 2))
    registry.cluster_changed(body("a", 4))
    registry.cluster_written(body("a", 3))
    assert registry.find("team", "a") == body("a", 4)
    registry.cluster_written(body("a", 5))
    assert registry.find("team", "a") == body("a", 5)
    registry.cluster_deleted(body("a", 6)["metadata"])
    registry.cluster_written(body("a", 5))
    assert registry.find("team", "a") is None, "it is gone"


async def test_who_waits_for_a_cluster_hears_that_its_loop_found_it_gone():
    """The event of its deletion may be lost, as where kopf's watch is too old."""
    told: list[str] = []
    registry = Registry()
    registry.lead(context("team"))
    registry.cluster_changed(body("a"))
    await acting()
    registry.on_cluster = told.append
    Loop.running[0].over.set()
    await acting()
    assert told == ["team/a"]
