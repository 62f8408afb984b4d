"""The kinds of the mirror: whether they are there and ours to write, and what there is of them.

The stock operator's have the same names. Read from the API server's discovery, which every service account may; to
watch definitions would take a right on the whole cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpudask.api.resource import Cluster
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from gpudask.clients.reflector import Caches, Reflector
from gpudask.mirror import objects
from gpudask.mirror.state import MirrorObject

_LOG = logging.getLogger(__name__)


@dataclass
class Definitions:
    """The three kinds on this API server: their caches, or why they are left alone (`refusal`).

    `came`: how often they have come. What was deleted of a mirror before they came says nothing of the one after.
    """

    caches: dict[str, Caches] = field(default_factory=dict)
    refusal: str = ""
    came: int = 0

    def of(self, cluster: Cluster) -> tuple[MirrorObject, ...]:
        """The objects that are of `cluster` by name, whoever owns them."""
        return tuple(item for caches in self.caches.values() for item in caches.owned(cluster.key))


class Follower:
    """Keeps `definitions` true while people install and remove them.

    While there is a mirror nothing is asked for: its watches tell when a kind is gone. Otherwise one look is made every
    `look_again_seconds`, none sooner than `pause_seconds` after the last. `make`: the caches of a kind, still empty,
    whose reflectors call what they are given when they are refused. `watch`: begins to run one of them. `changed` is
    called once the mirror is there, or is no more.
    """

    def __init__(
        self,
        api: Kubernetes,
        make: Callable[[str, Callable[[], None]], Caches],
        watch: Callable[[Reflector[Any]], asyncio.Task[None]],
        changed: Callable[[], None],
        *,
        look_again_seconds: float = 60.0,
        pause_seconds: float = 5.0,
    ) -> None:
        self.definitions = Definitions(refusal="its definitions have not been looked for yet")
        self.tasks: list[asyncio.Task[None]] = []
        self._api = api
        self._make = make
        self._watch = watch
        self._changed = changed
        self._look_again_seconds = look_again_seconds
        self._pause_seconds = pause_seconds
        self._doubted = asyncio.Event()

    @property
    def reflectors(self) -> list[Reflector[Any]]:
        """The reflectors that run."""
        caches = self.definitions.caches.values() if self.tasks else ()
        return [reflector for each in caches for reflector in each.reflectors]

    async def look(self) -> None:
        """Look whether the definitions are there, and begin or end the mirror where that has changed.

        Raises:
            ApiError: the API server could not be reached, or failed.
        """
        refusal = await _look_for(self._api)
        if refusal == self.definitions.refusal:
            return
        if refusal:
            _LOG.warning("no mirror for the stock Dask client: %s", refusal)
            self.definitions.refusal = refusal
            await self.stop()
        else:
            await self._begin()
        self._changed()

    async def follow(self) -> None:
        """Look when a watch is refused, and now and then while there is no mirror; never returns."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._look_again_seconds if self.definitions.refusal else None):
                    await self._doubted.wait()
            self._doubted.clear()
            try:
                await self.look()
            except ApiError as error:
                _LOG.warning("the definitions of the mirror: %s", error)
                self._doubted.set()
            await asyncio.sleep(self._pause_seconds)

    async def stop(self) -> None:
        """End the watches. The caches stay as they are: a pass may be in the middle of a write."""
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _begin(self) -> None:
        await self.stop()  # of a beginning that was cut off
        caches = {kind: self._make(kind, self._doubted.set) for kind in objects.KINDS}
        every = [reflector for each in caches.values() for reflector in each.reflectors]
        self.tasks = [self._watch(reflector) for reflector in every]
        await asyncio.gather(*(reflector.settled.wait() for reflector in every))
        self.definitions.caches, self.definitions.refusal = caches, ""
        self.definitions.came += 1
        _LOG.info("the mirror for the stock Dask client is there")


async def _look_for(api: Kubernetes) -> str:
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
            f"{', '.join(sorted(foreign))} of {objects.GROUP} belong to the stock Dask operator: remove it and its"
            " definitions, or switch the mirror off (mirror.enabled in the chart)"
        )
    if missing:
        return f"{', '.join(missing)} of {objects.GROUP} are missing: kubectl apply --server-side -f crds/mirror.yaml"
    return ""
