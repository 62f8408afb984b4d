"""A local copy of what the API server holds of one kind, kept current by a watch.

Ours rather than kopf's index: after a watch that was too old it finds what vanished meanwhile and says so, and it
keeps a few fields of each object instead of the whole. Our own writes are laid over it at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Generic, Protocol, TypeVar

from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import METADATA, Kubernetes

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)
_PAGE = "500"
_FULL = "application/json"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_FIRST_DELAY_SECONDS, _LAST_DELAY_SECONDS = 0.2, 10.0
# How many vanished objects are remembered: an answer of our own that comes after the news must not revive them.
_GONE_KEPT = 10_000


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

    `changed(owner)` is called for each change, with the owner's uid. `deleted(item)` is called for what somebody
    deleted while we watched, and not for what vanished otherwise. `metadata_only` asks the server for no more.

    `synced` is set while everything under `path` is known, and `filled()` is called when it is set. It is not while the
    API server refuses, as in a namespace that was deleted with the rights in it. `settled` is set from the first answer
    on, be it a refusal: nobody has to wait for rights that may never come.
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
        filled: Callable[[], None] = lambda: None,
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
        self._gone: dict[str, None] = {}
        self._filled = filled
        self.synced = asyncio.Event()
        self.settled = asyncio.Event()

    def owned(self, owner: str) -> tuple[T, ...]:
        """The objects whose controller has this uid."""
        return tuple(self._by_owner.get(owner, {}).values())

    def lay_over(self, body: Json) -> None:
        """Take in an object that one of our own writes returned, before the watch tells of it."""
        self._put(self._reduce(body))

    def forget(self, uid: str) -> None:
        """Take out an object that the API server says is gone."""
        self._drop(uid)

    async def run(self) -> None:
        """List, then watch, and list again whenever the watch is lost; never returns."""
        delay = _FIRST_DELAY_SECONDS
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list()
                    self._is_known()
                async for event_version in self._watch(version):
                    version = event_version
                    delay = _FIRST_DELAY_SECONDS
            except ApiError as error:
                if error.status != 0:
                    version = ""  # too old, or refused: what happened meanwhile is only in a list
                if error.not_found or error.forbidden:
                    self._is_refused(error)
                elif not error.gone:
                    _LOG.warning("%s; trying again in %.1f s", error, delay)
                if not error.gone:
                    delay = await _hold_off(delay)
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

    async def _list(self) -> str:
        """Take in everything that exists, take out what does not; the version to watch from."""
        seen: set[str] = set()
        query = {"labelSelector": self._label, "limit": _PAGE}
        while True:
            page = await self._api.list_page(self.path, query=query, accept=self._accept[0])
            for body in page["items"] or ():  # null where there is none
                seen.add(body["metadata"]["uid"])
                self._put(self._reduce(body))
            proceed = page["metadata"].get("continue")
            if not proceed:
                break
            query = query | {"continue": proceed}
        version = str(page["metadata"]["resourceVersion"])
        for uid in [uid for uid in self._by_uid if uid not in seen]:
            if int(self._by_uid[uid].version) <= int(version):  # else we made it while the list was read
                self._drop(uid)
        return version

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
                kind, body = event["type"], event["object"]
                if kind == "ERROR":
                    raise ApiError(
                        body.get("code", 500), body.get("reason", ""), body.get("message", ""), f"WATCH {self.path}"
                    )
                if kind == "DELETED":
                    self._tell_deletion(body["metadata"]["uid"])
                    self._drop(body["metadata"]["uid"])
                elif kind != "BOOKMARK":
                    self._put(self._reduce(body))
                yield body["metadata"]["resourceVersion"]

    def _put(self, item: T) -> None:
        if item.uid in self._gone:
            return
        old = self._by_uid.get(item.uid)
        if old is not None and int(item.version) <= int(old.version):
            return
        self._by_uid[item.uid] = item
        if old is not None and old.owner != item.owner:
            self._unindex(old)
        self._by_owner.setdefault(item.owner, {})[item.uid] = item
        self._changed(item.owner)

    def _drop(self, uid: str) -> None:
        self._gone[uid] = None
        if len(self._gone) > _GONE_KEPT:
            del self._gone[next(iter(self._gone))]
        item = self._by_uid.pop(uid, None)
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


async def _hold_off(delay: float) -> float:
    """Wait before the next try; how long the one after it waits, in seconds."""
    await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 - spreads retries
    return min(2 * delay, _LAST_DELAY_SECONDS)
