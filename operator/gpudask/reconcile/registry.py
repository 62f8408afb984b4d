"""All loops: one for each cluster that exists, started and woken by what is seen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from gpudask.api.resource import owner_key
from gpudask.desired.mirror import AUTOSCALER
from gpudask.planning.mirrored import Mirrored
from gpudask.reconcile.context import Context
from gpudask.reconcile.definitions import Definitions
from gpudask.reconcile.loop import ClusterLoop

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)


class Registry:
    """A cluster's `owner_key` -> its loop. Its uid is a part of it: one deleted and applied again is another one."""

    def __init__(self) -> None:
        self._context: Context | None = None
        self._definitions: Definitions | None = None
        self._named: dict[str, str] = {}  # by namespace/name: the key of the one that exists
        self._loops: dict[str, ClusterLoop] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, context: Context, definitions: Definitions | None = None) -> None:
        """Begin to act: the caches are complete. `definitions`: of the mirror, where it is switched on."""
        self._context, self._definitions = context, definitions

    def seen(self, body: Json) -> None:
        """A cluster exists."""
        metadata = body["metadata"]
        key = owner_key(metadata["namespace"], metadata["uid"])
        self._named[f"{metadata['namespace']}/{metadata['name']}"] = key
        if key in self._loops:
            self._loops[key].seen(body)
            return
        assert self._context is not None, "clusters are seen only after start"
        loop = ClusterLoop(self._context, body, self._definitions)
        self._loops[key] = loop
        task = asyncio.create_task(loop.run(), name=f"cluster {metadata['name']}")
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._ended(key, done))

    def gone(self, metadata: Mapping[str, Any]) -> None:
        """The cluster with these metadata was deleted; what it owned, Kubernetes collects."""
        task = self._tasks.get(owner_key(metadata["namespace"], metadata["uid"]))
        if task is not None:
            task.cancel()

    def changed(self, owner: str) -> None:
        """Something that the cluster with this `owner_key` owns changed."""
        loop = self._loops.get(owner)
        if loop is not None:
            loop.wake()

    def mirror_changed(self, key: str) -> None:
        """An object of the mirror of the cluster `key`, as `namespace/name`, changed."""
        self.changed(self._named.get(key, ""))

    def mirror_deleted(self, item: Mirrored) -> None:
        """Somebody deleted an object of a cluster's mirror, or its autoscaler before it was made a part of that."""
        made_by_person = item.kind == AUTOSCALER and not item.controller
        loop = self._loops.get(self._named.get(item.owner, "") if made_by_person else item.controller)
        if loop is not None:
            loop.mirror.deleted(item)

    async def stop(self) -> None:
        """End all loops; the clusters stay as they are."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        self._loops.pop(key, None)
        self._tasks.pop(key, None)
        self._named = {name: known for name, known in self._named.items() if known != key}
        if not task.cancelled() and task.exception() is not None:
            _LOG.critical("a cluster's loop failed: this is a defect", exc_info=task.exception())
