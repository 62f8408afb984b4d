"""A local copy of what the API server holds of one kind, kept current by a watch.

Ours rather than kopf's index: after a watch that was too old it finds what vanished meanwhile and says so, and it
keeps a few fields of each object instead of the whole. Our own writes are laid over it at once.

Who may write one object must not stop the news of all others. An object that cannot be reduced is skipped alone,
counted, and told once for each of its versions. What was known of it stays: it exists, since the API server speaks of
it, and nothing may be made in its place or taken for gone because a reading failed. The old picture is out of date and
is only good for that: a deletion by it names the object's uid, and where it names the version too, is refused. Word of
its deletion, which takes no more than its uid, ends it, and so does a list in which it is no longer.

Which of two copies is the newer their resourceVersions say, which are numbers that grow (Kubernetes 1.35 promises it,
KEP-5504; etcd's always were). They go back where etcd is restored from a backup. A watch from a version that the API
server has not reached (again) tells nothing, for ever, so before a watch goes on it is asked whether it has. And a list
is believed where what is known is no newer than the list itself, be it newer than the object in it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, Generic, Protocol, TypeVar

from gpudask.api.json_object import Json
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import METADATA, Kubernetes
from gpudask.planning.observed import fields

_LOG = logging.getLogger(__name__)
# Objects of a list that are in memory as JSON at one time: what a larger page takes once, the process keeps.
_PAGE = "100"
_FULL = "application/json"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_FIRST_DELAY_SECONDS, _LAST_DELAY_SECONDS = 0.2, 10.0
# How many vanished objects are remembered: an answer of our own that comes after the news must not revive them.
_GONE_KEPT = 10_000
# How many objects that cannot be read are remembered with the version that was told of.
_UNREADABLE_KEPT = 10_000
# Of such objects so many are told at once, and one in so many seconds from then on; the others are counted.
_TOLD_AT_ONCE, _TOLD_SECONDS = 20, 3.0
_WORDS = 200
_EVER = 10**fields.VERSION_DIGITS  # no version is higher


class Reflected(Protocol):
    """What a reflector keeps of an object."""

    @property
    def uid(self) -> str: ...  # noqa: D102
    @property
    def owner(self) -> str: ...  # noqa: D102
    @property
    def version(self) -> str: ...  # noqa: D102


T = TypeVar("T", bound=Reflected)


class Reflector(Generic[T]):
    """Objects under `path` that carry the label `label`, each reduced by `reduce`.

    `changed(owner)` is called for each change, with what the object is indexed by. `deleted(item)` is called for what
    somebody deleted while we watched, and not for what vanished otherwise. `metadata_only` asks the server for no more.

    `sighted(item, before, since)`: `item` as it is kept, in place of what was kept of it before, if anything was;
    `since`: when `clock` said that what there is was last known, 0.0 before it ever was.

    `synced` is set while everything under `path` is known, and `filled()` is called when it is set. It is not while the
    API server refuses, as in a namespace that was deleted with the rights in it. `settled` is set from the first answer
    on, be it a refusal: nobody has to wait for rights that may never come. `restored()` is called after a list that
    shows that what was known here had been undone, as by an etcd restored from a backup. `refused()` is called whenever
    the API server refuses to list, or knows no such kind.
    """

    def __init__(
        self,
        api: Kubernetes,
        path: str,
        *,
        label: str,
        reduce: Callable[[Json], T],
        changed: Callable[[str], None],
        deleted: Callable[[T], None] | None = None,
        metadata_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sighted: Callable[[T, T | None, float], T] = lambda item, _before, _since: item,
        filled: Callable[[], None] = lambda: None,
        restored: Callable[[], None] = lambda: None,
        refused: Callable[[], None] = lambda: None,
    ) -> None:
        self._api = api
        self.path = path
        self._label = label
        self._reduce = reduce
        self._changed = changed
        self._deleted = deleted
        self._accept = (_METADATA_LIST, METADATA) if metadata_only else (_FULL, _FULL)
        self._by_uid: dict[str, T] = {}
        self._by_owner: dict[str, dict[str, T]] = {}
        self._gone: dict[str, int] = {}  # uid -> the version at which it was gone
        self._unreadable: dict[str, str] = {}  # uid -> the version that was told of
        self._may_tell = float(_TOLD_AT_ONCE)
        self._may_tell_at = 0.0
        self._untold = 0
        self._clock = clock
        self._sighted = sighted
        self._known_at = 0.0
        self._filled = filled
        self._restored = restored
        self._refused = refused
        self._reached = 0  # the version that a list or a watch told last
        self._written: set[str] = set()  # uids of what our own writes returned since the last list began
        self.synced = asyncio.Event()
        self.settled = asyncio.Event()

    def owned(self, owner: str) -> tuple[T, ...]:
        """The objects whose `owner` is this."""
        return tuple(self._by_owner.get(owner, {}).values())

    @property
    def unreadable(self) -> int:
        """How many objects there are that cannot be read."""
        return len(self._unreadable)

    def lay_over(self, body: Json) -> bool:
        """Take in what one of our own writes returned, before the watch tells of it; whether it could be read."""
        self._written.add(_uid(body))
        return self._take(body)

    def forget(self, uid: str) -> None:
        """Take out an object that the API server says is gone."""
        self._drop(uid)

    async def run(self) -> None:
        """List, then watch, and list again whenever the watch is lost; never returns."""
        delay = _FIRST_DELAY_SECONDS
        version = ""
        while True:
            try:
                heard, version = version, ""
                version = await self._to_watch_from(heard)
                async for event_version in self._watch(version):
                    version = event_version
                    self._reached = _number(version)
                    delay = _FIRST_DELAY_SECONDS
            except ApiError as error:
                if error.status != 0:
                    version = ""  # too old, or refused: what happened meanwhile is only in a list
                if error.not_found or error.forbidden:
                    self._is_refused(error)
                elif not error.gone:
                    _LOG.warning("%s; trying again in %.1f s", error, delay)
                if not error.gone:
                    delay = await _hold_off(delay, at_least=error.retry_after_seconds or 0.0)
            except Exception:  # noqa: BLE001 - a cache that stops would be believed for ever
                _LOG.exception("watching %s: a defect; trying again in %.1f s", self.path, delay)
                version = ""
                delay = await _hold_off(delay)

    def _is_known(self) -> None:
        if self.settled.is_set() and not self.synced.is_set():
            _LOG.warning("LIST %s: allowed again", self.path)
        self.synced.set()
        self.settled.set()
        self._filled()

    def _is_refused(self, error: ApiError) -> None:
        """Say so once: it may last for ever, as where a watched namespace was deleted."""
        if self.synced.is_set() or not self.settled.is_set():
            _LOG.warning(
                "%s; trying again every %.0f s, what is there is unknown until then", error, _LAST_DELAY_SECONDS
            )
        self.synced.clear()
        self.settled.set()
        self._refused()

    async def _to_watch_from(self, heard: str) -> str:
        """The version that was `heard`, where a watch can go on from there, else a new list's."""
        if heard and await self._has_reached(heard):
            return heard
        version = await self._list()
        self._is_known()
        return version

    async def _has_reached(self, version: str) -> bool:
        """Whether the API server, which was at `version`, has got as far (again); False where it does not say.

        Any one object tells, without a label: a list without a version says what the newest is, and costs no more than
        what it reads. To ask for one that is not older than `version` would be in vain for a kind of which nothing
        happens: the API server's own cache is not told how far etcd is.
        """
        try:
            page = await self._api.list_page(self.path, query={"limit": "1"}, accept=_METADATA_LIST)
        except ApiError as error:
            _LOG.info("%s: what happened meanwhile is only in a list", error)
            return False
        return _number(_version(page)) >= _number(version)

    async def _list(self) -> str:
        """Take in everything that exists, take out what does not; the version to watch from."""
        seen: set[str] = set()
        query = {"labelSelector": self._label, "limit": _PAGE}
        self._written = set()
        version, went_back, undone = "", False, False
        while True:
            page = await self._api.list_page(self.path, query=query, accept=self._accept[0])
            if not version:
                version = str(page["metadata"]["resourceVersion"])
                went_back = undone = fields.is_version(version) and int(version) < self._reached
                if went_back:
                    self._gone.clear()
            for body in page["items"] or ():  # null where there is none
                seen.add(_uid(body))
                undone |= self._is_undone_by(body, version)
                self._take(body, listed=_EVER if went_back else _number(version))
            proceed = page["metadata"].get("continue")
            if not proceed:
                break
            query = query | {"continue": proceed}
        for uid in [uid for uid in (*self._by_uid, *self._unreadable) if uid not in seen]:
            known = self._by_uid.get(uid)
            made_since = known is not None and fields.is_version(version) and int(known.version) > int(version)
            if made_since and (uid in self._written or not went_back):  # by ourselves, while the list was read
                continue
            self._drop(uid, version, went_back=went_back)
        self._known_at, self._reached = self._clock(), _number(version)
        if undone:
            _LOG.warning("LIST %s: versions went back: it was restored from a backup", self.path)
            self._restored()
        return version

    def _is_undone_by(self, body: Any, version: str) -> bool:
        """Whether a list at `version` has an older object than was known, though what was known is no newer than it."""
        known = self._by_uid.get(_uid(body))
        return known is not None and _number(_version(body)) < int(known.version) <= _number(version)

    async def _watch(self, version: str) -> Any:
        """Take in events from `version` on; yields the version reached."""
        query = {
            "labelSelector": self._label,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(random.randint(300, 600)),  # noqa: S311 - spreads reconnections
        }
        async with aclosing(self._api.stream(self.path, query=query, accept=self._accept[1])) as events:
            async for event in events:
                kind, body = (event.get("type"), event.get("object")) if isinstance(event, dict) else (None, None)
                if kind == "ERROR":
                    raise self._error(body)
                if kind == "DELETED":
                    uid = _uid(body)
                    if not uid:  # which one, only a list can tell
                        raise ApiError(HTTPStatus.BAD_GATEWAY, "Unreadable", "a deletion of nothing", self._shown)
                    self._tell_deletion(uid)
                    self._drop(uid, _version(body))
                elif kind in ("ADDED", "MODIFIED"):
                    self._take(body)
                self._known_at = self._clock()
                if reached := _version(body):
                    yield reached

    def _error(self, body: Any) -> ApiError:
        """What the server ended a watch with."""
        of = body if isinstance(body, dict) else {}
        code = of.get("code")
        status = code if isinstance(code, int) and code else int(HTTPStatus.INTERNAL_SERVER_ERROR)
        return ApiError(status, _words(of, "reason"), _words(of, "message"), self._shown)

    @property
    def _shown(self) -> str:
        return f"WATCH {self.path}"

    def _take(self, body: Any, *, listed: int | None = None) -> bool:
        """Reduce an object and keep it; whether that went well. Whatever is wrong with it, it is skipped alone."""
        try:
            item = self._reduce(body)
            version = int(item.version)
        except Exception as error:  # noqa: BLE001 - in no object may stand what ends the news of all others
            self._skip(body, error)
            return False
        self._unreadable.pop(item.uid, None)
        self._put(item, version, listed)
        return True

    def _skip(self, body: Any, error: Exception) -> None:
        """Count an object that cannot be read, and tell of it, once for each of its versions."""
        uid, version = _uid(body), _version(body)
        if self._unreadable.get(uid) == version:
            return
        self._unreadable.pop(uid, None)
        self._unreadable[uid] = version
        if len(self._unreadable) > _UNREADABLE_KEPT:
            del self._unreadable[next(iter(self._unreadable))]
        now = time.monotonic()
        self._may_tell = min(_TOLD_AT_ONCE, self._may_tell + (now - self._may_tell_at) / _TOLD_SECONDS)
        self._may_tell_at = now
        if self._may_tell < 1:
            self._untold += 1
            return
        self._may_tell -= 1
        more, self._untold = f", and {self._untold} more since the last such line" if self._untold else "", 0
        _LOG.warning(
            "%s: %s cannot be read: %s; it is skipped, and what was known of it stays (%d such objects%s)",
            self.path,
            _named(body),
            f"{type(error).__name__}: {error}"[:_WORDS],
            self.unreadable,
            more,
        )

    def _put(self, item: T, version: int, listed: int | None) -> None:
        """Keep an object. `listed`: the version of the list in which it stands, None where it stands in none."""
        old = self._by_uid.get(item.uid)
        known = max(self._gone.get(item.uid, -1), int(old.version) if old is not None else -1)
        if listed is None or item.uid in self._written:
            if version <= known:
                return  # older than the news that it is gone; it comes back where its label was off for a while
        elif known > listed or (old is not None and version == int(old.version) and self._is_same(item, old)):
            return
        self._gone.pop(item.uid, None)
        self._by_uid[item.uid] = item = self._sighted(item, old, self._known_at)
        if old is not None and old.owner != item.owner:
            self._unindex(old)
        self._by_owner.setdefault(item.owner, {})[item.uid] = item
        self._changed(item.owner)

    def _is_same(self, item: T, old: T) -> bool:
        """Whether one version of an object is the same twice: after a restored backup it may be another."""
        return self._sighted(item, old, self._known_at) == old

    def _drop(self, uid: str, version: str = "", *, went_back: bool = False) -> None:
        """Take out what is gone; `version`: the one in which the API server says so, where it does.

        `went_back`: the versions that were known before say nothing any more.
        """
        self._unreadable.pop(uid, None)
        item = self._by_uid.pop(uid, None)
        before = self._gone.pop(uid, 0), int(item.version) if item is not None else 0
        last = _number(version) if went_back else max(_number(version), *before)
        self._gone[uid] = last
        if len(self._gone) > _GONE_KEPT:
            del self._gone[next(iter(self._gone))]
        if item is not None:
            self._unindex(item)
            self._changed(item.owner)

    def _tell_deletion(self, uid: str) -> None:
        item = self._by_uid.get(uid)
        if item is not None and self._deleted is not None:
            self._deleted(item)

    def _unindex(self, item: T) -> None:
        group = self._by_owner[item.owner]
        del group[item.uid]
        if not group:
            del self._by_owner[item.owner]


class Caches:
    """One kind's reflectors: one for the whole cluster, or one for each watched namespace."""

    def __init__(self, reflectors: list[Reflector[Any]]) -> None:
        self.reflectors = reflectors

    def owned(self, owner: str) -> tuple[Any, ...]:
        """The objects of the cluster with this `Identity.owner_key`, or of the mirror of the one of this key."""
        return tuple(item for reflector in self.reflectors for item in reflector.owned(owner))

    def know(self, namespace: str) -> bool:
        """Whether what there is in `namespace` is known."""
        return self._of(namespace).synced.is_set()

    def lay_over(self, namespace: str, body: Json) -> bool:
        """Take in what one of our own writes returned; whether it could be read."""
        return self._of(namespace).lay_over(body)

    def forget(self, namespace: str, uid: str) -> None:
        """Take out what is gone."""
        self._of(namespace).forget(uid)

    def _of(self, namespace: str) -> Reflector[Any]:
        marker = f"/namespaces/{namespace}/"
        return next((r for r in self.reflectors if marker in r.path), self.reflectors[0])


def _metadata(body: Any) -> Json:
    metadata = body.get("metadata") if isinstance(body, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def _uid(body: Any) -> str:
    """The object's uid, empty where it has none."""
    uid = _metadata(body).get("uid")
    return uid if isinstance(uid, str) and len(uid) <= fields.NAME_LENGTH else ""


def _version(body: Any) -> str:
    """The object's resourceVersion, empty where it has none that could be compared."""
    version = _metadata(body).get("resourceVersion")
    return str(version) if fields.is_version(version) else ""


def _number(version: str) -> int:
    return int(version) if fields.is_version(version) else 0


def _named(body: Any) -> str:
    """The object's namespace and name, for a log."""
    metadata = _metadata(body)
    return f"{_words(metadata, 'namespace')}/{_words(metadata, 'name')}"


def _words(of: Json, name: str) -> str:
    """The text in the field `name`, short and on one line."""
    value = of.get(name)
    return "".join(c if c.isprintable() else " " for c in value[:_WORDS]) if isinstance(value, str) else ""


async def _hold_off(delay: float, *, at_least: float = 0.0) -> float:
    """Wait before the next try; how long the one after it waits, in seconds. `at_least`: as the server asked for."""
    spread = random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries
    await asyncio.sleep(max(delay * spread, at_least))
    return min(2 * delay, _LAST_DELAY_SECONDS)
