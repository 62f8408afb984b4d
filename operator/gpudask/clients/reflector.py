"""A local copy of what the API server holds of one kind, kept current by a watch.

Ours rather than kopf's index: after a watch that was too old it finds what vanished meanwhile and reports it, and it
keeps a few fields of each object instead of the whole. Answers to our own writes are upserted at once.

Whoever may write one object must not stop the updates of all others. An object that cannot be reduced is skipped alone,
counted, and logged once for each of its versions. What was known of it stays: it exists, since the API server sends it,
and nothing may be made in its place or taken for gone because a reading failed. The old copy is out of date and is only
good for that: a deletion by it names the object's uid, and where it names the version too, is refused. The event of its
deletion, which takes no more than its uid, ends it, and so does a list in which it is no longer.

Of two copies the newer has the higher resourceVersion: these are numbers that grow (Kubernetes 1.35 promises it,
KEP-5504; etcd's always were). They go back where etcd is restored from a backup. A watch from a version that the API
server has not reached (again) sends nothing, for ever, so before a watch goes on the API server is asked for its
version. And a list is believed where what is known is no newer than the list itself, be it newer than the object in it.
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

from gpudask.api import Json
from gpudask.clients.clock import Silence
from gpudask.clients.deletions import Deletions
from gpudask.clients.errors import ApiError
from gpudask.clients.flow_control import RateLimiter
from gpudask.clients.kubernetes import METADATA, Kubernetes
from gpudask.clients.pages import pages
from gpudask.planning.observed import fields

_LOG = logging.getLogger(__name__)
_FULL = "application/json"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_FIRST_DELAY_SECONDS, _LAST_DELAY_SECONDS = 0.2, 10.0
_UNREACHED_DELAY_SECONDS = 2.0  # a connection that is refused costs nobody anything, and an outage's end is to be seen
# How many objects that cannot be read are remembered with the version that was logged.
_UNREADABLE_KEPT = 10_000
# Of such objects so many are logged at once, and one in so many seconds from then on; the others are counted.
_LOGGED_AT_ONCE, _LOG_INTERVAL_SECONDS = 20, 3.0
_TEXT_LENGTH = 200  # of what is quoted in a log
_EVER = 10**fields.VERSION_DIGITS  # no version is higher


class Reflected(Protocol):
    """What a reflector keeps of an object: its uid, what it is indexed by (`owner`), and its resourceVersion."""

    @property
    def uid(self) -> str: ...  # noqa: D102
    @property
    def owner(self) -> str: ...  # noqa: D102
    @property
    def version(self) -> str: ...  # noqa: D102


T = TypeVar("T", bound=Reflected)


class Reflector(Generic[T]):
    """Objects under `path` that carry the label `label`, each reduced by `reduce`.

    `on_change(owner)` is called for each change, with what the object is indexed by. `on_delete(item)` is called for
    what somebody deleted while we watched, and not for what vanished otherwise; `on_gone(item, since)` for whatever
    is taken out, however that was found out; `since`: when it was last known to be there, where a list alone shows that
    it is gone, and 0.0 where that was told. `metadata_only` asks the API server for no more.

    `merge(item, before, since)`: `item` as it is kept, in place of what was kept of it before, if anything was;
    `since`: the time by `clock` at which what there is was last known, 0.0 before it ever was.

    `synced` is set while everything under `path` is known, and `on_synced()` is called when it is set. It is not while
    the API server refuses, as in a namespace that was deleted with the rights in it. `settled` is set from the first
    answer on, be it a refusal: nobody has to wait for rights that may never come. `on_restore()` is called after a list
    that shows that what was known here had been undone, as by an etcd restored from a backup. `on_refusal()` is called
    whenever the API server refuses to list, or knows no such kind. `on_listed()` is called after each list of all.
    """

    def __init__(
        self,
        api: Kubernetes,
        path: str,
        *,
        label: str,
        reduce: Callable[[Json], T],
        on_change: Callable[[str], None],
        on_delete: Callable[[T], None] | None = None,
        on_gone: Callable[[T, float], None] = lambda _item, _since: None,
        metadata_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
        merge: Callable[[T, T | None, float], T] = lambda item, _before, _since: item,
        on_synced: Callable[[], None] = lambda: None,
        on_restore: Callable[[], None] = lambda: None,
        on_refusal: Callable[[], None] = lambda: None,
        on_listed: Callable[[], None] = lambda: None,
    ) -> None:
        self._api = api
        self.path = path
        self._label = label
        self._reduce = reduce
        self._on_change = on_change
        self._on_delete = on_delete
        self._on_gone = on_gone
        self._accept = (_METADATA_LIST, METADATA) if metadata_only else (_FULL, _FULL)
        self._by_uid: dict[str, T] = {}
        self._by_owner: dict[str, dict[str, T]] = {}
        self._deletions = Deletions(clock)
        self._unreadable: dict[str, str] = {}  # uid -> the version that was logged
        self._log_limiter = RateLimiter(1 / _LOG_INTERVAL_SECONDS, _LOGGED_AT_ONCE)
        self._not_logged = 0
        self._clock = clock
        self._merge = merge
        self._known_at = 0.0
        self._silence = Silence()
        self._without_kind_at = 0.0  # when the API server last said that there is no such kind
        self._on_synced = on_synced
        self._on_restore = on_restore
        self._on_refusal = on_refusal
        self._on_listed = on_listed
        self._reached = 0  # the version of the last list or event
        self._written: set[str] = set()  # uids of what our own writes returned since the start of the last list
        self.synced = asyncio.Event()
        self.settled = asyncio.Event()

    @property
    def _known_since(self) -> float:
        return self._silence.known_since(self._known_at, self._clock())

    def owned(self, owner: str) -> tuple[T, ...]:
        """The objects whose `owner` is this."""
        return tuple(self._by_owner.get(owner, {}).values())

    def known(self) -> tuple[T, ...]:
        """All objects."""
        return tuple(self._by_uid.values())

    def owners(self) -> tuple[str, ...]:
        """The owners of all objects."""
        return tuple(self._by_owner)

    def in_namespace(self, namespace: str) -> tuple[T, ...]:
        """The objects of all clusters of `namespace`, as far as known."""
        groups = (group for owner, group in self._by_owner.items() if owner.startswith(f"{namespace}/"))
        return tuple(item for group in groups for item in group.values())

    @property
    def unreadable(self) -> int:
        """How many objects there are that cannot be read."""
        return len(self._unreadable)

    @property
    def known_at(self) -> float:
        """When the API server last confirmed what is known, by `clock`; 0.0: never.

        Of a kind that it does not know it is known that there are no objects.
        """
        return self._known_at if self._by_uid else max(self._known_at, self._without_kind_at)

    def upsert(self, body: Json) -> bool:
        """Keep what one of our own writes returned, before the watch sends it; whether it could be read.

        What has lost the label meanwhile is no longer ours: the watch has told of its end, and never will again.
        """
        uid, known = _uid(body), self._by_uid.get(_uid(body))
        self._written.add(uid)
        if uid and not self._is_selected(body):
            if known is None or int(known.version) <= _number(_version(body)):
                self._drop(uid, _version(body))
            return True
        return self._process(body)

    def _is_selected(self, body: Json) -> bool:
        labels = _metadata(body).get("labels")
        return not self._label or (isinstance(labels, dict) and self._label in labels)

    def forget(self, uid: str) -> None:
        """Take out an object that is gone, by an answer of the API server."""
        self._drop(uid)

    async def run(self) -> None:
        """List, then watch, and list again whenever the watch is lost; never returns."""
        delay = _FIRST_DELAY_SECONDS
        version = ""
        while True:
            try:
                reached, version = version, ""
                version = await self._start_version(reached)
                async for event_version in self._watch(version):
                    version = event_version
                    self._reached = _number(version)
                    delay = _FIRST_DELAY_SECONDS
            except ApiError as error:
                if error.status != 0:
                    version = ""  # too old, or refused: only a list has what happened meanwhile
                else:
                    delay = min(delay, _UNREACHED_DELAY_SECONDS)
                if error.not_found or error.forbidden:
                    self._set_refused(error)
                elif not error.gone:
                    _LOG.warning("%s; trying again in %.1f s", error, delay)
                if not error.gone:
                    delay = await _wait_to_retry(delay, at_least=error.retry_after_seconds or 0.0)
            except Exception:  # noqa: BLE001 - a cache that stops would be believed for ever
                _LOG.exception("watching %s: a defect; trying again in %.1f s", self.path, delay)
                version = ""
                delay = await _wait_to_retry(delay)

    def _set_synced(self) -> None:
        if self.settled.is_set() and not self.synced.is_set():
            _LOG.warning("LIST %s: allowed again", self.path)
        self.synced.set()
        self.settled.set()
        self._on_synced()

    def _set_refused(self, error: ApiError) -> None:
        """Log it once: it may last for ever, as where a watched namespace was deleted."""
        if self.synced.is_set() or not self.settled.is_set():
            _LOG.warning(
                "%s; trying again every %.0f s, what is there is unknown until then", error, _LAST_DELAY_SECONDS
            )
        if error.not_found:
            self._without_kind_at = self._clock()
        self.synced.clear()
        self.settled.set()
        self._on_refusal()

    async def _start_version(self, reached: str) -> str:
        """The version to watch from: `reached`, where a watch can go on from there, else a new list's."""
        if reached and await self._has_reached(reached):
            return reached
        version = await self._list()
        self._set_synced()
        return version

    async def _has_reached(self, version: str) -> bool:
        """Whether the API server, which was at `version`, has got as far (again); False where that is unknown.

        A list of any one object, without a label, has it: a list that asks for no version has the newest, and costs no
        more than what it reads. To ask for one that is not older than `version` would be in vain for a kind of which
        nothing changes: the API server's own cache does not learn how far etcd is.
        """
        try:
            page = await self._api.list_page(self.path, query={"limit": "1"}, accept=_METADATA_LIST)
        except ApiError as error:
            _LOG.info("%s: what happened meanwhile is only in a list", error)
            return False
        return _number(_version(page)) >= _number(version)

    async def _list(self) -> str:
        """Keep everything that exists, drop what does not; the version to watch from."""
        listed: set[str] = set()
        self._written = set()
        version, went_back, undone = "", False, False
        listing = pages(self._api, self.path, query={"labelSelector": self._label}, accept=self._accept[0])
        async with aclosing(listing) as every:
            async for page in every:
                if not version:
                    version = str(page["metadata"]["resourceVersion"])
                    went_back = undone = fields.is_version(version) and int(version) < self._reached
                    if went_back:
                        self._deletions.clear()
                for body in page["items"] or ():  # null where there is none
                    listed.add(_uid(body))
                    undone |= self._is_undone_by(body, version)
                    self._process(body, listed=_EVER if went_back else _number(version))
        for uid in [uid for uid in (*self._by_uid, *self._unreadable) if uid not in listed]:
            known = self._by_uid.get(uid)
            made_since = known is not None and fields.is_version(version) and int(known.version) > int(version)
            if made_since and (uid in self._written or not went_back):  # by ourselves, while the list was read
                continue
            self._drop(uid, version, went_back=went_back, since=self._known_since)
        self._known_at, self._reached = self._clock(), _number(version)
        self._on_listed()
        if undone:
            _LOG.warning("LIST %s: versions went back: it was restored from a backup", self.path)
            self._on_restore()
        return version

    def _is_undone_by(self, body: Any, version: str) -> bool:
        """Whether a list at `version` has an older object than was known, though what was known is no newer than it."""
        known = self._by_uid.get(_uid(body))
        return known is not None and _number(_version(body)) < int(known.version) <= _number(version)

    async def _watch(self, version: str) -> Any:
        """Process events from `version` on; yields the version reached."""
        query = {
            "labelSelector": self._label,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(random.randint(300, 600)),  # noqa: S311 - spreads reconnections
        }
        async with aclosing(self._api.stream(self.path, query=query, accept=self._accept[1])) as events:
            async for event in events:
                self._silence.ends(self._known_at, self._clock())
                kind, body = (event.get("type"), event.get("object")) if isinstance(event, dict) else (None, None)
                if kind == "ERROR":
                    raise self._error(body)
                if kind == "DELETED":
                    uid = _uid(body)
                    if not uid:  # only a list can show which one
                        raise ApiError(HTTPStatus.BAD_GATEWAY, "Unreadable", "a deletion of nothing", self._shown)
                    self._report_deletion(uid)
                    self._drop(uid, _version(body))
                elif kind in ("ADDED", "MODIFIED"):
                    self._process(body)
                self._known_at = self._clock()
                self._deletions.forget_old()  # a bookmark comes every minute
                if reached := _version(body):
                    yield reached

    def _error(self, body: Any) -> ApiError:
        """The error with which the API server ended a watch."""
        of = body if isinstance(body, dict) else {}
        code = of.get("code")
        status = code if isinstance(code, int) and code else int(HTTPStatus.INTERNAL_SERVER_ERROR)
        return ApiError(status, _text(of, "reason"), _text(of, "message"), self._shown)

    @property
    def _shown(self) -> str:
        return f"WATCH {self.path}"

    def _process(self, body: Any, *, listed: int | None = None) -> bool:
        """Reduce an object and keep it; whether it could be read. Whatever is wrong with it, it is skipped alone."""
        try:
            item = self._reduce(body)
            version = int(item.version)
        except Exception as error:  # noqa: BLE001 - no object's content may end the updates of all others
            self._skip(body, error)
            return False
        self._unreadable.pop(item.uid, None)
        self._store(item, version, listed)
        return True

    def _skip(self, body: Any, error: Exception) -> None:
        """Count an object that cannot be read, and log it, once for each of its versions."""
        uid, version = _uid(body), _version(body)
        if self._unreadable.get(uid) == version:
            return
        self._unreadable.pop(uid, None)
        self._unreadable[uid] = version
        if len(self._unreadable) > _UNREADABLE_KEPT:
            del self._unreadable[next(iter(self._unreadable))]
        now = time.monotonic()
        if self._log_limiter.available_at(now) > now:
            self._not_logged += 1
            return
        self._log_limiter.reserve(now)
        more = f", and {self._not_logged} more since the last such line" if self._not_logged else ""
        self._not_logged = 0
        _LOG.warning(
            "%s: %s cannot be read: %s; it is skipped, and what was known of it stays (%d such objects%s)",
            self.path,
            _named(body),
            f"{type(error).__name__}: {error}"[:_TEXT_LENGTH],
            self.unreadable,
            more,
        )

    def _store(self, item: T, version: int, listed: int | None) -> None:
        """Keep an object. `listed`: the version of the list that it comes from, None where it comes from none."""
        old = self._by_uid.get(item.uid)
        deleted_at = self._deletions.version(item.uid)
        known = max(-1 if deleted_at is None else deleted_at, int(old.version) if old is not None else -1)
        if listed is None or item.uid in self._written:
            if version <= known:
                return  # older than its deletion; it comes back where its label was off for a while
        elif known > listed or (old is not None and version == int(old.version) and self._is_same(item, old)):
            return
        self._deletions.pop(item.uid)
        self._by_uid[item.uid] = item = self._merge(item, old, self._known_since)
        if old is not None and old.owner != item.owner:
            self._unindex(old)
        self._by_owner.setdefault(item.owner, {})[item.uid] = item
        for owner in dict.fromkeys((item.owner, old.owner if old is not None else item.owner)):
            self._on_change(owner)  # who lost it may have to make it anew

    def _is_same(self, item: T, old: T) -> bool:
        """Whether one version of an object is the same twice: after a restored backup it may be another."""
        return self._merge(item, old, self._known_since) == old

    def _drop(self, uid: str, version: str = "", *, went_back: bool = False, since: float = 0.0) -> None:
        """Take out what is gone; `version`: that of its deletion, where the API server sent it.

        `went_back`: the versions that were known before mean nothing any more. `since`: as `on_gone`'s.
        """
        self._unreadable.pop(uid, None)
        item = self._by_uid.pop(uid, None)
        before = self._deletions.pop(uid) or 0, int(item.version) if item is not None else 0
        last = _number(version) if went_back else max(_number(version), *before)
        self._deletions.note(uid, last)
        if item is not None:
            self._unindex(item)
            self._on_gone(item, since)
            self._on_change(item.owner)

    def _report_deletion(self, uid: str) -> None:
        item = self._by_uid.get(uid)
        if item is not None and self._on_delete is not None:
            self._on_delete(item)

    def _unindex(self, item: T) -> None:
        group = self._by_owner[item.owner]
        del group[item.uid]
        if not group:
            del self._by_owner[item.owner]


class Caches:
    """The local copies of one kind: one reflector for the whole cluster, or one for each watched namespace."""

    def __init__(self, reflectors: list[Reflector[Any]]) -> None:
        self.reflectors = reflectors

    def owned(self, owner: str) -> tuple[Any, ...]:
        """The objects of the cluster with this `Identity.owner_key`; of its mirror's, those by its `namespace/name`."""
        return tuple(item for reflector in self.reflectors for item in reflector.owned(owner))

    def owners(self) -> tuple[str, ...]:
        """The owners of all objects, as `owned` takes them."""
        return tuple(owner for reflector in self.reflectors for owner in reflector.owners())

    def in_namespace(self, namespace: str) -> tuple[Any, ...]:
        """The objects of all clusters of `namespace`."""
        return tuple(item for reflector in self.reflectors for item in reflector.in_namespace(namespace))

    def know(self, namespace: str) -> bool:
        """Whether everything in `namespace` is known."""
        return self._of(namespace).synced.is_set()

    def known_at(self, namespace: str) -> float:
        """When a list or a watch last told what there is in `namespace`, by the reflectors' clock; 0.0: never."""
        return self._of(namespace).known_at

    def upsert(self, namespace: str, body: Json) -> bool:
        """Keep what one of our own writes returned; whether it could be read."""
        return self._of(namespace).upsert(body)

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
    return f"{_text(metadata, 'namespace')}/{_text(metadata, 'name')}"


def _text(of: Json, name: str) -> str:
    """The text of the field `name`, short and on one line."""
    value = of.get(name)
    return "".join(c if c.isprintable() else " " for c in value[:_TEXT_LENGTH]) if isinstance(value, str) else ""


async def _wait_to_retry(delay: float, *, at_least: float = 0.0) -> float:
    """Wait before the next try; the delay before the one after it, in seconds. `at_least`: as the server asked for."""
    spread = random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries
    await asyncio.sleep(max(delay * spread, at_least))
    return min(2 * delay, _LAST_DELAY_SECONDS)
