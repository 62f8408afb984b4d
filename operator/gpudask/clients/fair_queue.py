"""A fair queue for requests to one server: round robin over the clusters with waiting requests.

A plain semaphore serves first come, first served: 5,000 creations of one cluster would stand before another's first
GPU pod. The API server's own priority and fairness cannot tell clusters apart, since the operator is one user to it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

# The uid of the cluster for which the running task works. A cluster's loop sets it once, and every task that it starts
# inherits it, so that no request can be made past its cluster's share. Empty: the operator's own requests.
CLUSTER: ContextVar[str] = ContextVar("cluster", default="")


@dataclass
class _Waiting:
    """The waiting requests of one cluster: those in bulk come after all others."""

    first: deque[asyncio.Future[None]] = field(default_factory=deque)
    bulk: deque[asyncio.Future[None]] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self.first or self.bulk)

    def pop(self) -> asyncio.Future[None]:
        return (self.first or self.bulk).popleft()


class FairQueue:
    """Admits `at_once` requests at a time, of one cluster at most `each`: one whose requests hang leaves room."""

    def __init__(self, at_once: int, each: int) -> None:
        self._free = at_once
        self._each = each
        self._active: Counter[str] = Counter()
        self._waiting: OrderedDict[str, _Waiting] = OrderedDict()  # the cluster whose turn is next stands first

    @asynccontextmanager
    async def turn(self, *, bulk: bool = False) -> AsyncGenerator[None]:
        """Wait for a turn of the running task's cluster, and hold it. `bulk`: after its other waiting requests."""
        cluster = CLUSTER.get()
        await self._enter(cluster, bulk=bulk)
        try:
            yield
        finally:
            self._leave(cluster)

    async def _enter(self, cluster: str, *, bulk: bool) -> None:
        turn = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(cluster, _Waiting())
        (waiting.bulk if bulk else waiting.first).append(turn)
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # admitted in the moment in which it was cancelled
                self._leave(cluster)
            raise

    def _leave(self, cluster: str) -> None:
        self._free += 1
        self._active[cluster] -= 1
        if not self._active[cluster]:
            del self._active[cluster]
        self._admit()

    def _admit(self) -> None:
        while self._free and (cluster := self._next()) is not None:
            waiting = self._waiting[cluster]
            turn = waiting.pop()
            if not turn.cancelled():
                self._free -= 1
                self._active[cluster] += 1
                turn.set_result(None)
                self._waiting.move_to_end(cluster)
            if not waiting:
                del self._waiting[cluster]

    def _next(self) -> str | None:
        """The first cluster that waits and holds less than `each`."""
        return next((cluster for cluster in self._waiting if self._active[cluster] < self._each), None)
