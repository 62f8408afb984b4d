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
    """Cluster uid -> its loop. Keyed by uid: a cluster deleted and applied again is another one.

    While another operator leads there are no loops, and the clusters are kept as last seen: who takes over begins at
    once.
    """

    def __init__(self) -> None:
        self._context: Context | None = None
        self._definitions: Definitions | None = None
        self._leads = False
        self._bodies: dict[str, Json] = {}  # by uid
        self._uids: dict[str, str] = {}  # by namespace/name: the uid of the one that exists
        self._loops: dict[str, ClusterLoop] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def lead(self, context: Context, definitions: Definitions | None = None) -> None:
        """Begin to act, on the clusters that are known and those that come. `definitions`: of the mirror, if any."""
        self._context, self._definitions, self._leads = context, definitions, True
        self.begin()

    def begin(self) -> None:
        """Begin to act on the clusters of namespaces whose caches have filled meanwhile."""
        for body in list(self._bodies.values()):
            self._begin(body)

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
        uid = metadata["uid"]
        self._uids[f"{metadata['namespace']}/{metadata['name']}"] = uid
        self._bodies[uid] = body
        if uid in self._loops:
            self._loops[uid].seen(body)
        else:
            self._begin(body)

    def gone(self, uid: str) -> None:
        """A cluster was deleted; what it owned, Kubernetes collects."""
        self._forget(uid)
        task = self._tasks.get(uid)
        if task is not None:
            task.cancel()

    def _begin(self, body: Json) -> None:
        uid = body["metadata"]["uid"]
        context = self._context
        if not self._leads or uid in self._loops or context is None or not context.knows(body["metadata"]["namespace"]):
            return
        loop = ClusterLoop(context, body, self._definitions)
        self._loops[uid] = loop
        task = asyncio.create_task(loop.run(), name=f"cluster {body['metadata']['name']}")
        self._tasks[uid] = task
        task.add_done_callback(lambda done: self._ended(uid, done))

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

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(uid) is task:
            del self._loops[uid], self._tasks[uid]
        if task.cancelled():
            return
        self._forget(uid)
        if task.exception() is not None:
            _LOG.critical("a cluster's loop failed: this is a defect", exc_info=task.exception())

    def _forget(self, uid: str) -> None:
        self._bodies.pop(uid, None)
        self._uids = {key: known for key, known in self._uids.items() if known != uid}
