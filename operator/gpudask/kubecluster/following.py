"""A cluster manager's news of its scheduler: the list of workers, over a new connection when one is lost."""

# mypy: disallow-untyped-calls=False, disallow-any-generics=False
from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from typing import Any, TypeVar

from distributed.core import Status
from distributed.deploy.cluster import Cluster
from distributed.objects import SchedulerInfo

from gpudask.kubecluster.timing import Timing

T = TypeVar("T")


class FollowingCluster(Cluster):
    """A `distributed.deploy.Cluster` that goes on when the connection to its scheduler is replaced."""

    def __init__(self, *, timing: Timing, **options: Any) -> None:
        super().__init__(**options)
        self._timing = timing
        self._news_of_workers = asyncio.Event()

    async def _watch_worker_status(self, comm: Any) -> None:
        """Follow the scheduler's list of workers, over a new connection when one is lost."""
        while True:
            await super()._watch_worker_status(comm)
            if self.status == Status.running:
                self._lost()
            while True:
                if self.status != Status.running:
                    return
                try:
                    comm = await self.answered(self._subscribe())
                    break
                except OSError:
                    await self._timing.clock.sleep(self._timing.retry_seconds)
            self._found_again()

    def _lost(self) -> None:
        """Called when the connection is lost."""

    def _found_again(self) -> None:
        """Called when there is another one."""

    def _update_worker_status(self, op: str, msg: Any) -> None:
        super()._update_worker_status(op, msg)
        self._news_of_workers.set()

    async def answered(self, asked: Awaitable[T], at_most_seconds: float = math.inf) -> T:
        """What the scheduler answers.

        Raises:
            OSError: the scheduler or the way to it is being replaced, or it is busy: ask again.
        """
        limit_seconds = min(self._timing.scheduler_seconds, at_most_seconds)
        try:
            async with asyncio.timeout(limit_seconds):
                return await asked
        except TimeoutError as error:
            raise TimeoutError(str(error) or f"no answer within {limit_seconds:g} s") from error

    async def _subscribe(self) -> Any:
        assert self.scheduler_comm is not None
        comm = await self.scheduler_comm.live_comm()
        await comm.write({"op": "subscribe_worker_status"})
        self.scheduler_info = SchedulerInfo(await comm.read())
        self._watch_worker_status_comm = comm
        return comm

    async def _close(self) -> None:
        if self._watch_worker_status_task is not None:
            # The base closes the connection that it knows and waits for this task, which may just be making another.
            self._watch_worker_status_task.cancel()
            await asyncio.wait([self._watch_worker_status_task])
            self._watch_worker_status_task = None
        await super()._close()
