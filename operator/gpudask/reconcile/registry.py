"""All loops: one for each cluster that exists, started and woken by what is seen."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from gpudask.desired.mirror import AUTOSCALER
from gpudask.planning.mirrored import Mirrored
from gpudask.reconcile.context import Context
from gpudask.reconcile.definitions import Definitions
from gpudask.reconcile.loop import ClusterLoop

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)


class Registry:
    """Cluster uid -> its loop. Keyed by uid: a cluster deleted and applied again is another one."""

    def __init__(self) -> None:
        self._context: Context | None = None
        self._definitions: Definitions | None = None
        self._uids: dict[str, str] = {}  # by namespace/name: the uid of the one that exists
        self._loops: dict[str, ClusterLoop] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, context: Context, definitions: Definitions | None = None) -> None:
        """Begin to act: the caches are complete. `definitions`: of the mirror, where it is switched on."""
        self._context, self._definitions = context, definitions

    def seen(self, body: Json) -> None:
        """A cluster exists."""
        uid = body["metadata"]["uid"]
        self._uids[f"{body['metadata']['namespace']}/{body['metadata']['name']}"] = uid
        if uid in self._loops:
            self._loops[uid].seen(body)
            return
        assert self._context is not None, "clusters are seen only after start"
        loop = ClusterLoop(self._context, body, self._definitions)
        self._loops[uid] = loop
        name = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
        task = self._context.supervisor.start(loop.run, kind="cluster", name=name, may_end=True)
        self._tasks[uid] = task
        task.add_done_callback(lambda done: self._ended(uid, done))

    def gone(self, uid: str) -> None:
        """A cluster was deleted; what it owned, Kubernetes collects."""
        task = self._tasks.get(uid)
        if task is not None:
            task.cancel()

    def changed(self, uid: str) -> None:
        """Something that this cluster owns changed."""
        loop = self._loops.get(uid)
        if loop is not None:
            loop.wake()

    def mirror_changed(self, key: str) -> None:
        """An object of the mirror of the cluster `key`, as `namespace/name`, changed."""
        self.changed(self._uids.get(key, ""))

    def mirror_deleted(self, item: Mirrored) -> None:
        """Somebody deleted an object of a cluster's mirror, or its autoscaler before it was made a part of that."""
        made_by_person = item.kind == AUTOSCALER and not item.controller
        loop = self._loops.get(self._uids.get(item.owner, "") if made_by_person else item.controller)
        if loop is not None:
            loop.mirror.deleted(item)

    async def stop(self) -> None:
        """End all loops; the clusters stay as they are."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        self._loops.pop(uid, None)
        self._tasks.pop(uid, None)
        self._uids = {key: known for key, known in self._uids.items() if known != uid}
        if not task.cancelled() and task.exception() is not None:
            _LOG.critical("a cluster's loop failed: this is a defect", exc_info=task.exception())
