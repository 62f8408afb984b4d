"""All loops: one for each cluster that exists, started and woken by what is seen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from gpudask.api.json_object import Json
from gpudask.api.resource import owner_key, parse_status
from gpudask.mirror.definitions import Definitions
from gpudask.mirror.objects import AUTOSCALER
from gpudask.mirror.state import MirrorObject
from gpudask.reconcile.context import Context
from gpudask.reconcile.loop import ClusterLoop

_LOG = logging.getLogger(__name__)


class Registry:
    """A cluster's `owner_key` -> its loop. Its uid is a part of it: one deleted and applied again is another one.

    While another operator leads there are no loops, and the clusters are kept as last seen: who takes over begins at
    once.
    """

    def __init__(self) -> None:
        self._context: Context | None = None
        self._definitions: Definitions | None = None
        self._leads = False
        self._bodies: dict[str, Json] = {}  # by key
        self._named: dict[str, str] = {}  # by namespace/name: the key of the one that exists
        self._loops: dict[str, ClusterLoop] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def lead(self, context: Context, definitions: Definitions | None = None) -> None:
        """Begin to act, on the clusters that are known and those that come. `definitions`: of the mirror, if any."""
        self._context, self._definitions, self._leads = context, definitions, True
        self.begin()

    def begin(self) -> None:
        """Begin to act on the clusters of namespaces whose caches have filled meanwhile; first on what lacks pods."""
        for key, body in sorted(self._bodies.items(), key=lambda item: self._has_its_pods(*item)):
            self._begin(key, body)

    def _has_its_pods(self, key: str, body: Json) -> bool:
        """Whether there are as many pods as its status says are wanted; the scheduler's is one of them."""
        if self._context is None or key in self._loops:
            return True
        live = [pod for pod in self._context.pods.owned(key) if pod.live]
        return len(live) > sum(pool.desired for pool in parse_status(body).pools)

    async def stand_by(self) -> None:
        """End all loops; the clusters stay as they are."""
        self._leads = False
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def seen(self, body: Json) -> None:
        """A cluster exists."""
        metadata = body["metadata"]
        key = owner_key(metadata["namespace"], metadata["uid"])
        self._named[f"{metadata['namespace']}/{metadata['name']}"] = key
        self._bodies[key] = body
        if key in self._loops:
            self._loops[key].seen(body)
        else:
            self._begin(key, body)

    def gone(self, metadata: Mapping[str, Any]) -> None:
        """The cluster with these metadata was deleted; what it owned, Kubernetes collects."""
        key = owner_key(metadata["namespace"], metadata["uid"])
        self._forget(key)
        task = self._tasks.get(key)
        if task is not None:
            task.cancel()

    def _begin(self, key: str, body: Json) -> None:
        metadata, context = body["metadata"], self._context
        if not self._leads or key in self._loops or context is None or not context.knows(metadata["namespace"]):
            return
        loop = self._loops[key] = ClusterLoop(context, body, self._definitions)
        name = f"{metadata['namespace']}/{metadata['name']}"
        task = self._tasks[key] = context.supervisor.start(loop.run, kind="cluster", name=name, may_end=True)
        task.add_done_callback(lambda done: self._ended(key, done))

    def changed(self, owner: str) -> None:
        """Something that the cluster with this `owner_key` owns changed."""
        loop = self._loops.get(owner)
        if loop is not None:
            loop.wake()

    def wake_all(self) -> None:
        """Something changed that concerns every cluster."""
        for loop in self._loops.values():
            loop.wake()

    def preloads_changed(self, namespace_key: str) -> None:
        """One of the ConfigMaps that a namespace's clusters share changed: who misses it now looks again."""
        if self._context is None or not self._leads:
            return
        now = self._context.preloads.there(namespace_key.removesuffix("/"))
        for key, loop in self._loops.items():
            if key.startswith(namespace_key):
                loop.preloads_changed(now)

    def mirror_changed(self, key: str) -> None:
        """An object of the mirror of the cluster `key`, as `namespace/name`, changed."""
        self.changed(self._named.get(key, ""))

    def mirror_deleted(self, item: MirrorObject) -> None:
        """Somebody deleted an object of a cluster's mirror, or its autoscaler before it was made a part of that."""
        made_by_person = item.kind == AUTOSCALER and not item.controller
        loop = self._loops.get(self._named.get(item.owner, "") if made_by_person else item.controller)
        if loop is not None:
            loop.mirror.deleted(item)

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is task:
            del self._loops[key], self._tasks[key]
        if task.cancelled():
            return
        self._forget(key)
        if task.exception() is not None:
            _LOG.critical("a cluster's loop failed: this is a defect", exc_info=task.exception())

    def _forget(self, key: str) -> None:
        self._bodies.pop(key, None)
        self._named = {name: known for name, known in self._named.items() if known != key}
