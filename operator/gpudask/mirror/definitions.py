"""The CRDs of the mirror's kinds, `kubernetes.dask.org`: whether they are there, and ours; the caches of their objects.

The stock operator's have the same names. Read from the API server's discovery, which every service account may do; to
watch definitions would take a right on the whole cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gpudask.api import Json
from gpudask.api.resource import Cluster
from gpudask.clients.errors import ApiError
from gpudask.clients.flow_control import namespace_of
from gpudask.clients.kubernetes import Kubernetes
from gpudask.clients.recheck import changed
from gpudask.clients.reflector import Caches, Reflector
from gpudask.mirror import objects
from gpudask.mirror.state import MirrorObject

_LOG = logging.getLogger(__name__)


@dataclass
class Definitions:
    """The three kinds on this API server: their caches, or why there is no mirror (`refusal`).

    `installations`: how often they were installed. A deletion before one means nothing for the mirror after it.
    """

    caches: dict[str, Caches] = field(default_factory=dict)
    refusal: str = ""
    installations: int = 0

    def of(self, cluster: Cluster) -> tuple[MirrorObject, ...]:
        """The objects that mirror `cluster` by name, whoever owns them."""
        return self.at(cluster.key)

    def at(self, key: str) -> tuple[MirrorObject, ...]:
        """The objects of the cluster `key`, as `namespace/name`, whoever made them, and whether there is one or not."""
        return tuple(item for caches in self.caches.values() for item in caches.owned(key))

    def every_key(self) -> set[str]:
        """The keys under which there are objects."""
        return {key for caches in self.caches.values() for key in caches.owners()}

    def know(self, namespace: str) -> bool:
        """Whether all objects in `namespace` are known."""
        return bool(self.caches) and all(caches.know(namespace) for caches in self.caches.values())

    async def look_again(self, api: Kubernetes, item: MirrorObject, error: ApiError) -> Json | None:
        """An object as it is after a write to it that got `error`, kept where it is new; None: it is gone.

        That is not forgotten: its event comes, and says more, as who deleted it meant something by it.

        Raises:
            ApiError: as `clients.recheck.look_again`.
        """
        namespace = namespace_of(item.owner)
        metadata = {"name": item.name, "namespace": namespace}
        get = partial(api.get, {"apiVersion": objects.API_VERSION, "kind": item.kind, "metadata": metadata})
        body = await changed(get, uid=item.uid, version=item.version, error=error)
        if body is not None and not self.caches[item.kind].upsert(namespace, body):
            raise error
        return body


class DefinitionsWatcher:
    """Keeps `definitions` up to date while people install and remove them.

    While there is a mirror no request is made: its watches are refused when a kind is removed. Otherwise a check is
    made every `check_interval_seconds`, none sooner than `min_interval_seconds` after the last. `make`: the caches of a
    kind, still empty, whose reflectors call its second argument when they are refused. `watch`: starts one of them.
    `on_change` is called once the mirror is there, or is no more.
    """

    def __init__(
        self,
        api: Kubernetes,
        make: Callable[[str, Callable[[], None]], Caches],
        watch: Callable[[Reflector[Any]], asyncio.Task[None]],
        on_change: Callable[[], None],
        *,
        check_interval_seconds: float = 60.0,
        min_interval_seconds: float = 5.0,
    ) -> None:
        self.definitions = Definitions(refusal="its definitions have not been checked yet")
        self.tasks: list[asyncio.Task[None]] = []
        self._api = api
        self._make = make
        self._watch = watch
        self._on_change = on_change
        self._check_interval_seconds = check_interval_seconds
        self._min_interval_seconds = min_interval_seconds
        self._recheck = asyncio.Event()

    @property
    def reflectors(self) -> list[Reflector[Any]]:
        """The reflectors that run."""
        caches = self.definitions.caches.values() if self.tasks else ()
        return [reflector for each in caches for reflector in each.reflectors]

    async def check(self) -> None:
        """Check whether the definitions are installed, and start or stop the mirror where that has changed.

        Raises:
            ApiError: the API server could not be reached, or failed.
        """
        refusal = await _find_refusal(self._api)
        if refusal == self.definitions.refusal:
            return
        if refusal:
            _LOG.warning("no mirror for the stock Dask client: %s", refusal)
            self.definitions.refusal = refusal
            await self.stop()
        else:
            await self._start()
        self._on_change()

    async def run(self) -> None:
        """Check when a watch is refused, and at intervals while there is no mirror; never returns."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._check_interval_seconds if self.definitions.refusal else None):
                    await self._recheck.wait()
            self._recheck.clear()
            try:
                await self.check()
            except ApiError as error:
                _LOG.warning("the definitions of the mirror: %s", error)
                self._recheck.set()
            await asyncio.sleep(self._min_interval_seconds)

    async def stop(self) -> None:
        """End the watches. The caches stay as they are: a pass may be in the middle of a write."""
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _start(self) -> None:
        await self.stop()  # of an earlier start that was interrupted
        caches = {kind: self._make(kind, self._recheck.set) for kind in objects.KINDS}
        every = [reflector for each in caches.values() for reflector in each.reflectors]
        self.tasks = [self._watch(reflector) for reflector in every]
        await asyncio.gather(*(reflector.settled.wait() for reflector in every))
        self.definitions.caches, self.definitions.refusal = caches, ""
        self.definitions.installations += 1
        _LOG.info("the mirror for the stock Dask client is there")


async def _find_refusal(api: Kubernetes) -> str:
    """Why there can be no mirror; empty: there can.

    Raises:
        ApiError: the API server could not be reached, or failed.
    """
    try:
        found = await api.request("GET", f"/apis/{objects.API_VERSION}")
    except ApiError as error:
        if not error.not_found:
            raise
        return "its definitions are missing: kubectl apply --server-side -f crds/mirror.yaml"
    kinds = {item["kind"]: item for item in found["resources"] if "/" not in item["name"]}
    missing = [kind for kind in objects.KINDS if kind not in kinds]
    foreign = [kind for kind, item in kinds.items() if objects.CATEGORY not in item.get("categories", ())]
    if foreign:
        return (
            f"{', '.join(sorted(foreign))} of {objects.GROUP} belong to the stock Dask operator: remove it and replace"
            " its definitions, which keeps its objects (kubectl replace -f crds/mirror.yaml), or switch the mirror off"
            " (mirror.enabled in the chart)"
        )
    if missing:
        return f"{', '.join(missing)} of {objects.GROUP} are missing: kubectl apply --server-side -f crds/mirror.yaml"
    return ""
