"""A fair queue: round robin over the namespaces that wait, and within each over its clusters.

A plain semaphore serves first come, first served: 5,000 creations of one cluster would stand before another's first
GPU pod. Turns by cluster alone leave a thousand clusters of one namespace before the one of another. The API server's
own priority and fairness cannot tell them apart, since the operator is one user to it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

# The cluster for which the running task works, as `owner_key` has it: its namespace, a slash, its uid. A cluster's loop
# sets it once, and every task that it starts inherits it, so that no request can be made past its cluster's share.
# Empty: the operator's own requests.
CLUSTER: ContextVar[str] = ContextVar("cluster", default="")


def namespace_of(cluster: str) -> str:
    """The namespace of a value of `CLUSTER`: whose users share one turn in the round."""
    return cluster.partition("/")[0]


@dataclass
class _Waiting:
    """The waiting requests of one cluster: those in bulk come after all others."""

    first: deque[asyncio.Future[None]] = field(default_factory=deque)
    bulk: deque[asyncio.Future[None]] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self.first or self.bulk)

    def pop(self) -> asyncio.Future[None]:
        return (self.first or self.bulk).popleft()


# By namespace and by cluster: at each level, whose turn is next stands first.
_Round = OrderedDict[str, OrderedDict[str, _Waiting]]


class FairQueue:
    """Admits `at_once` requests at a time: where requests hang, others have room.

    `each`: of them at most so many are one cluster's. `each_namespace`: one namespace's; `at_once` without.
    """

    def __init__(self, at_once: int, each: int, each_namespace: int | None = None) -> None:
        self._free = at_once
        self._each = each
        self._each_namespace = at_once if each_namespace is None else each_namespace
        self._active: Counter[str] = Counter()  # by cluster, and by namespace
        self._waiting: _Round = OrderedDict()

    @asynccontextmanager
    async def turn(self, *, bulk: bool = False) -> AsyncGenerator[None]:
        """Wait for a turn of the running task's cluster, and hold it. `bulk`: after its other waiting requests."""
        cluster = CLUSTER.get()
        await self._enter(cluster, bulk=bulk)
        try:
            yield
        finally:
            self._leave(cluster)

    async def begin(self) -> None:
        """Wait for a turn of the running task's cluster, and hold it for one step of the event loop.

        It is for work of the processor: what the task does until it next waits is done within its turn.
        """
        cluster = CLUSTER.get()
        await self._enter(cluster, bulk=False)
        asyncio.get_running_loop().call_soon(self._leave, cluster)

    async def _enter(self, cluster: str, *, bulk: bool) -> None:
        turn = asyncio.get_running_loop().create_future()
        clusters = self._waiting.setdefault(namespace_of(cluster), OrderedDict())
        waiting = clusters.setdefault(cluster, _Waiting())
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
        for key in (cluster, _total(cluster)):
            self._active[key] -= 1
            if not self._active[key]:
                del self._active[key]
        self._admit()

    def _admit(self) -> None:
        while self._free and (cluster := self._next()) is not None:
            turn = self._pop(cluster)
            if not turn.cancelled():
                self._free -= 1
                self._active.update((cluster, _total(cluster)))
                turn.set_result(None)

    def _next(self) -> str | None:
        """The first cluster that waits and may have another turn, of the first such namespace."""
        for namespace, clusters in self._waiting.items():
            if self._active[_total(namespace)] < self._each_namespace:
                found = next((cluster for cluster in clusters if self._active[cluster] < self._each), None)
                if found is not None:
                    return found
        return None

    def _pop(self, cluster: str) -> asyncio.Future[None]:
        """The next waiting request of `cluster`, which stands last from now on, as does its namespace."""
        namespace = namespace_of(cluster)
        clusters = self._waiting[namespace]
        waiting = clusters[cluster]
        turn = waiting.pop()
        clusters.move_to_end(cluster)
        self._waiting.move_to_end(namespace)
        if not waiting:
            del clusters[cluster]
        if not clusters:
            del self._waiting[namespace]
        return turn


def _total(cluster: str) -> str:
    """Under which key the turns of a whole namespace are counted: no cluster's key ends so."""
    return f"{namespace_of(cluster)}/*"
