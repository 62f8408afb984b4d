"""All loops: one for each cluster that exists, started and woken by what is seen."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from gpudask.reconcile.context import Context
from gpudask.reconcile.loop import ClusterLoop

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)


class Registry:
    """Cluster uid -> its loop. Keyed by uid: a cluster deleted and applied again is another one."""

    def __init__(self) -> None:
        self._context: Context | None = None
        self._loops: dict[str, ClusterLoop] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, context: Context) -> None:
        """Begin to act: the caches are complete."""
        self._context = context

    def seen(self, body: Json) -> None:
        """A cluster exists."""
        uid = body["metadata"]["uid"]
        if uid in self._loops:
            self._loops[uid].seen(body)
            return
        assert self._context is not None, "clusters are seen only after start"
        loop = ClusterLoop(self._context, body)
        self._loops[uid] = loop
        task = asyncio.create_task(loop.run(), name=f"cluster {body['metadata']['name']}")
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

    async def stop(self) -> None:
        """End all loops; the clusters stay as they are."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        self._loops.pop(uid, None)
        self._tasks.pop(uid, None)
        if not task.cancelled() and task.exception() is not None:
            _LOG.critical("a cluster's loop failed: this is a defect", exc_info=task.exception())
