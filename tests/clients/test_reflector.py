"""The cache holds what the API server holds, whatever happens to its watch."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpudask.clients.errors import ApiError
from gpudask.clients.reflector import Reflector
from tests.virtual_time import in_virtual_time, now


@dataclass(frozen=True)
class Item:
    uid: str
    owner: str
    version: str


def body(uid: str, version: int, owner: str = "c") -> Json:
    return {"metadata": {"uid": uid, "resourceVersion": str(version), "labels": {"l": "x"}}, "owner": owner}


def event(kind: str, uid: str, version: int, owner: str = "c") -> Json:
    return {"type": kind, "object": body(uid, version, owner)}


UNREADABLE = {"metadata": {"uid": "x", "name": "odd", "namespace": "theirs", "resourceVersion": "7"}}
GONE = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}


@dataclass
class Script:
    """An API server that plays lists and watches in turn; errors are raised, and the last watch stays open.

    "look": how far it is.
    """

    lists: list[Any]
    watches: list[Any]
    asked: list[str] = field(default_factory=list)
    version: Any = ""  # that it has reached, where that is not what the cache has
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def list_page(self, _path: str, *, query: Json, **_: str) -> Json:
        if "labelSelector" not in query:
            self.asked.append("look")
            version = self.version or "1000"
            if isinstance(version, Exception):
                raise version
            return {"items": [], "metadata": {"resourceVersion": version}}
        page = self.lists.pop(0)
        self.asked.append(f"list{'+' if 'continue' in query else ''}")
        if isinstance(page, Exception):
            raise page
        items, version, *rest = page
        return {"items": items, "metadata": {"resourceVersion": str(version)} | ({"continue": rest[0]} if rest else {})}

    async def stream(self, _path: str, *, query: Json, **_: str) -> AsyncIterator[Json]:
        self.asked.append(f"watch {query['resourceVersion']}")
        if not self.watches:
            self.open.set()
            await asyncio.Event().wait()
        events = self.watches.pop(0)
        for item in events:
            if isinstance(item, Exception):
                raise item
            yield item


@dataclass
class Timed(Script):
    """It notes when it is asked, in seconds of the event loop's clock."""

    times: list[float] = field(default_factory=list)

    async def list_page(self, path: str, *, query: Json, **others: str) -> Json:
        self.times.append(now())
        return await super().list_page(path, query=query, **others)


class Cache:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.changed: list[str] = []
        self.deleted: list[str] = []
        self.gone: list[tuple[str, float]] = []
        self.filled = self.restored = self.lists = 0
        self.synced_at: list[float] = []  # what was known then
        self.refused = asyncio.Event()
        self.reflector: Reflector[Item] = Reflector(
            script,  # type: ignore[arg-type]
            "/pods",
            label="l",
            reduce=lambda b: Item(b["metadata"]["uid"], b["owner"], b["metadata"]["resourceVersion"]),
            on_change=self.changed.append,
            on_delete=lambda item: self.deleted.append(item.uid),
            on_gone=lambda item, since: self.gone.append((item.uid, since)),
            on_synced=self._filled,
            on_restore=self._restored,
            on_refusal=self.refused.set,
            on_listed=self._listed,
        )

    def _listed(self) -> None:
        self.lists += 1

    def _filled(self) -> None:
        self.filled += 1
        self.synced_at.append(self.reflector.known_at)

    def _restored(self) -> None:
        self.restored += 1

    async def play(self) -> None:
        """Run the script to its end."""
        task = asyncio.create_task(self.reflector.run())
        try:
            await asyncio.wait_for(self.script.open.wait(), 60)
        finally:
            task.cancel()

    def uids(self, owner: str = "c") -> list[str]:
        return sorted(item.uid for item in self.reflector.owned(owner))


@pytest.mark.parametrize(
    ("lists", "watches", "uids", "asked"),
    [
        pytest.param([([], 5)], [], [], ["list", "watch 5"], id="an empty list"),
        pytest.param([(None, 5)], [], [], ["list", "watch 5"], id="a list that is null"),
        pytest.param(
            [([body("a", 1)], 5, "more"), ([body("b", 2)], 5)], [], ["a", "b"], ["list", "list+", "watch 5"], id="pages"
        ),
        pytest.param(
            [([body("a", 1)], 5)],
            [[event("ADDED", "b", 6), event("DELETED", "a", 7), event("BOOKMARK", "", 9)]],
            ["b"],
            ["list", "watch 5", "look", "watch 9"],
            id="a watch that ends goes on from its bookmark",
        ),
        pytest.param(
            [([body("a", 1), body("b", 2)], 5), ([body("b", 2)], 9)],
            [[GONE]],
            ["b"],
            ["list", "watch 5", "list", "watch 9"],
            id="after 410 what vanished is gone",
        ),
        pytest.param(
            [([body("a", 1)], 5), ([], 9)],
            [[ApiError(410, "Expired", "", "")]],
            [],
            ["list", "watch 5", "list", "watch 9"],
            id="a 410 as an answer is the same",
        ),
        pytest.param(
            [([body("a", 1)], 5)],
            [[event("ADDED", "b", 6), ApiError(0, "ClientError", "cut", "")]],
            ["a", "b"],
            ["list", "watch 5", "look", "watch 6"],
            id="a cut connection goes on where it was",
        ),
        pytest.param(
            [([body("a", 1)], 5), ([body("a", 1)], 6)],
            [[{"type": "ERROR", "object": {"code": 500, "reason": "x", "message": "etcdserver: leader changed"}}]],
            ["a"],
            ["list", "watch 5", "list", "watch 6"],
            id="a 500 event lists again and ends nothing",
        ),
        pytest.param(
            [ApiError(0, "x", "refused", ""), ([body("a", 1)], 5)],
            [],
            ["a"],
            ["list", "list", "watch 5"],
            id="no server",
        ),
        pytest.param(
            [([body("a", 1), UNREADABLE, 7, None, []], 5)],
            [[event("ADDED", "b", 6), {"type": "MODIFIED", "object": UNREADABLE}, event("ADDED", "c", 9)]],
            ["a", "b", "c"],
            ["list", "watch 5", "look", "watch 9"],
            id="what cannot be read is skipped alone",
        ),
        pytest.param(
            [([body("a", 1)], 5)],
            [[7, {}, {"type": "ADDED"}, {"type": [], "object": {}}, {"type": "BOOKMARK", "object": 7}]],
            ["a"],
            ["list", "watch 5", "look", "watch 5"],
            id="an event that is none changes nothing",
        ),
        pytest.param(
            [([body("a", 1)], 5), ([], 6)],
            [[{"type": "DELETED", "object": {"metadata": []}}]],
            [],
            ["list", "watch 5", "list", "watch 6"],
            id="which object was deleted without a uid, a list tells",
        ),
        pytest.param(
            [([body("a", 1)], 5), ([body("b", 2)], 6)],
            [[{"type": "ERROR", "object": ["nonsense"]}]],
            ["b"],
            ["list", "watch 5", "list", "watch 6"],
            id="an error without words lists again",
        ),
        pytest.param(
            [([body("a", 1)], 5), ([body("b", 2)], "new")],
            [[GONE]],
            ["b"],
            ["list", "watch 5", "list", "watch new"],
            id="a list whose version is no number is a list",
        ),
        pytest.param(
            [([body("a", 5)], 5)],
            [[event("MODIFIED", "a", 7), event("MODIFIED", "a", 6)]],
            ["a"],
            ["list", "watch 5", "look", "watch 6"],
            id="old news changes nothing",
        ),
    ],
)
async def test_the_cache_follows(lists: list[Any], watches: list[Any], uids: list[str], asked: list[str]):
    cache = Cache(Script(lists, watches))
    await cache.play()
    assert (cache.uids(), cache.script.asked) == (uids, asked)


async def test_each_list_of_all_is_told_of_and_news_make_it_known_since_then():
    cache = Cache(Script([([], 1), ([], 5)], [[event("ADDED", "a", 2), ApiError(410, "Gone", "", "")]]))
    assert cache.reflector.known_at == 0.0
    began = time.monotonic()
    await cache.play()
    assert cache.lists == 2
    assert began <= cache.reflector.known_at <= time.monotonic()


async def test_a_vanished_object_wakes_its_owner():
    cache = Cache(Script([([body("a", 1, "x"), body("b", 1, "y")], 5), ([body("a", 1, "x")], 9)], [[GONE]]))
    await cache.play()
    assert cache.changed == ["x", "y", "y"]


async def test_of_what_a_list_alone_shows_to_be_gone_it_is_told_when_it_was_last_known():
    heard = [event("DELETED", "a", 3), event("ADDED", "c", 4)]
    cache = Cache(Script([([body("a", 1), body("b", 2)], 2), ([body("c", 4)], 9)], [[*heard, GONE]]))
    began = time.monotonic()
    await cache.play()
    (told, listed) = cache.gone
    assert told == ("a", 0.0)
    assert listed[0] == "b"
    assert began <= listed[1] < cache.reflector.known_at


def test_our_own_write_is_seen_at_once_and_an_older_event_does_not_undo_it():
    cache = Cache(Script([], []))
    cache.reflector.upsert(body("a", 7))
    cache.reflector.upsert(body("a", 6, "other"))
    assert cache.uids() == ["a"]


async def test_what_we_made_while_a_list_was_read_stays():
    cache = Cache(Script([([], 5)], []))
    cache.reflector.upsert(body("new", 6))
    cache.reflector.upsert(body("old", 4))
    await cache.play()
    assert cache.uids() == ["new"]


async def test_an_answer_that_comes_after_the_news_of_the_deletion_makes_no_ghost():
    cache = Cache(Script([([body("a", 1)], 5)], [[event("DELETED", "a", 8), event("DELETED", "b", 9)]]))
    await cache.play()
    cache.reflector.upsert(body("a", 7))
    cache.reflector.upsert(body("b", 7))
    assert cache.uids() == []


def test_an_object_that_changes_hands_is_under_its_new_owner_alone():
    cache = Cache(Script([], []))
    cache.reflector.upsert(body("a", 1, "x"))
    cache.reflector.upsert(body("a", 2, "y"))
    assert (cache.uids("x"), cache.uids("y")) == ([], ["a"])
    assert cache.changed == ["x", "y", "x"]  # who lost it hears of that
    cache.reflector.forget("a")
    assert cache.uids("y") == []


async def test_what_somebody_deletes_is_told_and_what_vanished_is_not():
    script = Script([([body("a", 1), body("b", 2)], 5), ([], 9)], [[event("DELETED", "a", 6), GONE]])
    cache = Cache(script)
    await cache.play()
    assert cache.uids() == []
    assert cache.deleted == ["a"]


def unreadable(uid: str, version: object) -> Json:
    metadata = {"uid": uid, "name": uid, "namespace": "theirs", "resourceVersion": version, "labels": {"l": "x"}}
    return {"metadata": metadata}


async def test_an_object_that_cannot_be_read_any_more_is_believed_to_be_as_it_was():
    news = [{"type": "MODIFIED", "object": unreadable("a", "6")}, GONE]
    cache = Cache(Script([([body("a", 1)], 5), ([unreadable("a", "6")], 9)], [news]))
    await cache.play()
    assert [(item.uid, item.version) for item in cache.reflector.owned("c")] == [("a", "1")]
    assert cache.changed == ["c"]
    assert cache.reflector.unreadable == 1


@pytest.mark.parametrize(
    "news",
    [[event("DELETED", "a", 7)], [{"type": "DELETED", "object": unreadable("a", "7")}], [GONE]],
    ids=["its deletion", "its deletion, unreadable too", "a list without it"],
)
async def test_what_cannot_be_read_ends_with(news: list[Json]):
    first = ([body("a", 1)], 5)
    cache = Cache(Script([first, ([], 9)], [[{"type": "MODIFIED", "object": unreadable("a", "6")}, *news]]))
    await cache.play()
    assert cache.uids() == []
    assert cache.reflector.unreadable == 0


async def test_an_object_that_can_be_read_again_is_taken_in():
    news = [{"type": "MODIFIED", "object": unreadable("a", "6")}, event("MODIFIED", "a", 7)]
    cache = Cache(Script([([body("a", 1)], 5)], [news]))
    await cache.play()
    assert [item.version for item in cache.reflector.owned("c")] == ["7"]
    assert cache.reflector.unreadable == 0


async def test_an_unreadable_object_is_told_once_for_each_version(caplog: pytest.LogCaptureFixture):
    items = [unreadable("x", "6"), unreadable("y", "7")]
    again = [{"type": "MODIFIED", "object": unreadable("x", "6")}, {"type": "MODIFIED", "object": unreadable("x", "8")}]
    cache = Cache(Script([(items, 9), ([unreadable("x", "8"), unreadable("y", "7")], 9)], [[*again, GONE]]))
    await cache.play()
    told = [record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()]
    assert [text.split(" cannot")[0] for text in told] == [f"/pods: theirs/{uid}" for uid in ("x", "y", "x")]
    assert "KeyError: 'owner'" in told[0]


def test_many_unreadable_objects_do_not_fill_the_log(caplog: pytest.LogCaptureFixture):
    cache = Cache(Script([], []))
    for number in range(11_000):
        assert not cache.reflector.upsert(unreadable(f"u{number}\n", "1"))
    told = [record.getMessage() for record in caplog.records]
    assert len(told) < 100
    assert not any("\n" in text for text in told)
    assert cache.reflector.unreadable == 10_000, "no more are remembered"


@pytest.mark.parametrize("version", ["new", "", None, "9" * 5000, "1.5", ["1"]])
def test_a_version_that_is_no_number_is_skipped(version: object):
    cache = Cache(Script([], []))
    cache.reflector.upsert(body("a", 1) | {"metadata": {"uid": "b", "resourceVersion": version, "labels": {"l": "x"}}})
    cache.reflector.upsert(body("a", 1))
    assert cache.uids() == ["a"]


async def test_an_object_whose_label_was_off_for_a_while_is_seen_again():
    cache = Cache(Script([([body("a", 1)], 5)], [[event("DELETED", "a", 6), event("ADDED", "a", 8)]]))
    await cache.play()
    assert cache.uids() == ["a"]


async def test_an_answer_with_an_object_that_has_lost_its_label_brings_it_not_back():
    """Somebody took the label off just before our write: the watch has told, and tells no more."""
    without = body("a", 7) | {"metadata": {"uid": "a", "resourceVersion": "7", "labels": {"other": "x"}}}
    cache = Cache(Script([([body("a", 1)], 5)], [[event("DELETED", "a", 6)]]))
    await cache.play()
    assert cache.reflector.upsert(without)
    assert cache.uids() == []
    cache.reflector.upsert(body("a", 8))
    cache.reflector.upsert(without)
    assert cache.uids() == ["a"], "an older answer says nothing"
    cache.reflector.upsert(without | {"metadata": without["metadata"] | {"resourceVersion": "9"}})
    assert cache.uids() == []


async def test_an_answer_that_is_older_than_the_list_without_it_makes_no_ghost():
    cache = Cache(Script([([body("a", 5)], 5), ([], 9)], [[GONE]]))
    await cache.play()
    cache.reflector.upsert(body("a", 7))
    assert cache.uids() == []


async def test_a_refusal_settles_the_cache_and_what_is_allowed_again_fills_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpudask.clients.reflector._FIRST_DELAY_SECONDS", 0.001)
    refused = ApiError(403, "Forbidden", "pods is forbidden", "LIST /pods")
    cache = Cache(Script([refused, refused, ([body("a", 1)], 1)], []))
    running = asyncio.create_task(cache.reflector.run())
    try:
        async with asyncio.timeout(60):
            await cache.reflector.settled.wait()
        assert not cache.reflector.synced.is_set(), "nothing is known"
        async with asyncio.timeout(60):
            await cache.reflector.synced.wait()
        assert cache.filled == 1
    finally:
        running.cancel()


async def test_what_is_refused_after_it_was_known_is_known_no_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("gpudask.clients.reflector._FIRST_DELAY_SECONDS", 0.001)
    refused = ApiError(403, "Forbidden", "pods is forbidden", "WATCH /pods")
    cache = Cache(Script([([body("a", 1)], 1), *[refused] * 3, ([body("b", 9)], 9)], [[refused]]))
    running = asyncio.create_task(cache.reflector.run())
    try:
        async with asyncio.timeout(60):
            await cache.script.open.wait()
        assert [item.uid for item in cache.reflector.owned("c")] == ["b"], "as it is since it came back"
        assert cache.filled == 2
        told = [record.message for record in caplog.records if "forbidden" in record.message]
        assert len(told) == 1, "once, however long it lasts"
    finally:
        running.cancel()


def test_a_watch_is_back_soon_after_an_outage_and_a_server_that_answers_with_errors_is_asked_seldom():
    """The pause had grown to ten seconds: pods that ended in an outage held their GPUs so much longer in the ledger."""

    async def longest_pause(error: ApiError) -> float:
        script = Timed([*[error] * 40, ([], 1)], [])
        running = asyncio.create_task(Cache(script).reflector.run())
        await script.open.wait()
        running.cancel()
        return max(then - before for before, then in itertools.pairwise(script.times))

    assert in_virtual_time(longest_pause(UNHEARD)) <= 2.0
    assert 5.0 < in_virtual_time(longest_pause(ApiError(503, "ServiceUnavailable", "busy", "LIST /pods"))) <= 10.0


UNKNOWN = ApiError(404, "NotFound", "404 page not found", "LIST /jobs")


async def test_a_kind_that_is_not_installed_is_known_to_have_no_objects():
    """The age of what is known grew without end, and an alert fired where jobs were not installed."""
    cache = Cache(Script([UNKNOWN] * 10, []))
    began = time.monotonic()
    running = asyncio.create_task(cache.reflector.run())
    try:
        async with asyncio.timeout(60):
            await cache.reflector.settled.wait()
        assert cache.reflector.known_at >= began, "that there are none is known"
        assert not cache.reflector.synced.is_set()
    finally:
        running.cancel()


async def test_objects_of_a_kind_that_is_gone_are_old_until_a_list_says_so():
    cache = Cache(Script([([body("a", 1)], 1)] + [UNKNOWN] * 10, [[UNKNOWN]]))
    running = asyncio.create_task(cache.reflector.run())
    try:
        async with asyncio.timeout(60):
            await cache.refused.wait()
        # The list and the refusal come in one turn of the loop: who waits for the list alone hears of both.
        assert cache.synced_at == [cache.reflector.known_at]
    finally:
        running.cancel()


def versions(cache: Cache) -> dict[str, str]:
    return {item.uid: item.version for item in cache.reflector.owned("c")}


UNHEARD = ApiError(0, "ClientConnectorError", "refused", "LIST /pods")


@pytest.mark.parametrize("version", ["3", UNHEARD, ApiError(403, "Forbidden", "", "")])
async def test_a_watch_does_not_go_on_from_a_version_that_was_not_reached(version: Any):
    cut = ApiError(0, "ClientError", "cut", "")
    cache = Cache(Script([([body("a", 1)], 5), ([body("a", 1)], 12)], [[event("ADDED", "b", 9), cut]], version=version))
    await cache.play()
    assert cache.script.asked == ["list", "watch 5", "look", "list", "watch 12"]
    assert versions(cache) == {"a": "1"}


async def test_after_a_backup_was_restored_the_list_is_right_though_it_is_older():
    """Versions go back: one object is older, one younger than the backup is gone, one that was deleted is there."""
    news = [event("MODIFIED", "a", 20), event("ADDED", "new", 21), event("DELETED", "back", 22)]
    first, restored = [body("a", 1), body("back", 2)], [body("a", 4), body("back", 2)]
    cache = Cache(Script([(first, 5), (restored, 8)], [news], version="8"))
    await cache.play()
    assert versions(cache) == {"a": "4", "back": "2"}
    assert cache.restored == 1
    cache.reflector.upsert(body("a", 9))
    assert versions(cache)["a"] == "9"


async def test_so_it_is_where_versions_have_caught_up_since():
    first, restored = [body("a", 1)], [body("a", 4)]
    cache = Cache(Script([(first, 5), (restored, 40)], [[event("MODIFIED", "a", 20), GONE]]))
    await cache.play()
    assert versions(cache) == {"a": "4"}
    assert cache.restored == 1


async def test_one_version_that_is_another_object_after_a_backup_was_restored_is_taken_in():
    cache = Cache(Script([([body("a", 4, "x")], 5), ([body("a", 4, "c")], 40)], [[GONE]]))
    await cache.play()
    assert (cache.uids("x"), cache.uids("c")) == ([], ["a"])
    assert cache.changed == ["x", "c", "x"]


async def test_our_own_write_does_not_win_over_a_restored_object():
    cache = Cache(Script([([body("a", 1)], 5), ([body("a", 1)], 8)], [[event("MODIFIED", "a", 9), GONE]]))
    playing = asyncio.create_task(cache.play())
    cache.reflector.upsert(body("a", 30))
    cache.reflector.upsert(body("made", 31))
    await playing
    assert versions(cache) == {"a": "1"}


async def test_what_we_write_while_the_list_of_a_restored_server_is_read_stays():
    script = Script([([body("a", 20)], 25), ([body("a", 1)], 5, "more"), ([body("b", 2)], 5)], [[GONE]])
    cache = Cache(script)
    pages = script.list_page

    async def list_page(path: str, *, query: Json, **rest: str) -> Json:
        if "continue" in query:
            cache.reflector.upsert(body("made", 6))
            cache.reflector.upsert(body("b", 7))
        return await pages(path, query=query, **rest)

    script.list_page = list_page  # type: ignore[method-assign]
    await cache.play()
    assert versions(cache) == {"a": "1", "made": "6", "b": "7"}


async def test_a_list_that_is_no_news_wakes_nobody():
    cache = Cache(Script([([body("a", 1)], 5), ([body("a", 1)], 9)], [[GONE]]))
    await cache.play()
    assert (cache.changed, cache.restored) == (["c"], 0)
