"""Flow control: a fair queue for what runs at the same time, rate limiters, and the back-off after failures.

All are fair: round robin over the namespaces that wait, and within each over its clusters. A plain semaphore serves
first come, first served: 5,000 creations of one cluster would stand before another's first GPU pod. Turns by cluster
alone leave a thousand clusters of one namespace before the one of another. The API server's own priority and fairness
cannot tell them apart, since the operator is one user to it.

What is not urgent waits for its rate limiter, so that the urgent need not. A thousand clusters whose counts move would
otherwise ask for more passes and statuses than there is CPU for them, here and in the API server, and a GPU task's pod
would wait among them.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

_JITTER = 0.5  # so much of a delay, at most, is chance: what failed together is not tried again together
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


@dataclass
class RateLimiter:
    """`a_second` turns each second, evenly spread; after a rest as many as `at_once` without a pause.

    `free_at`: when all turns that were taken are over.
    """

    a_second: float
    at_once: float = 1.0
    free_at: float = field(default=0.0, init=False)

    def take(self, now: float, turns: float = 1.0) -> float:
        """Take the next turn, or several; when it is, `now` at the soonest. `now` is seconds on any one clock."""
        turn = self.next(now)
        self.free_at = max(now, self.free_at) + turns / self.a_second
        return turn

    def next(self, now: float) -> float:
        """When the next turn is, which is not taken."""
        return max(now, self.free_at - (self.at_once - 1) / self.a_second)


@dataclass
class FairRateLimiter:
    """`a_second` turns each second for all namespaces together: who has many clusters waits for his own alone.

    A namespace's turns are as far apart as there are namespaces with turns to come. Turns once taken stay, so that
    where another namespace begins to take some there are more than `a_second` for a while: of n that begin one after
    another, `a_second` times 1 + 1/2 + ... + 1/n at most. `at_once`: as `RateLimiter`'s, of each namespace.
    """

    a_second: float
    at_once: float = 1.0
    _limiters: dict[str, RateLimiter] = field(default_factory=dict, init=False)

    def take(self, namespace: str, now: float) -> float:
        """Take the next turn of `namespace`; when it is, `now` at the soonest. `now`: seconds on any one clock."""
        limiter = self._limiters.pop(namespace, None) or RateLimiter(self.a_second, self.at_once)
        self._limiters = {key: other for key, other in self._limiters.items() if other.free_at > now}
        self._limiters[namespace] = limiter
        return limiter.take(now, turns=len(self._limiters))


@dataclass(frozen=True, slots=True)
class Backoff:
    """Twice as long after each failure, from `first_seconds` up to `last_seconds`, with jitter around that.

    `random`: numbers from 0 to 1; 0.5 gives the delay without jitter.
    """

    first_seconds: float
    last_seconds: float
    random: Callable[[], float] = random.random

    def delay(self, failures: int, retry_after_seconds: float | None = None) -> float:
        """Seconds to wait after so many failures in a row, and never less than the server asked for."""
        doublings = min(failures - 1, 30)  # beyond that a float overflows some day
        delay = min(self.first_seconds * 2.0**doublings, self.last_seconds)
        delay *= 1 + _JITTER * (self.random() - 0.5)
        if retry_after_seconds is None:
            return delay
        return max(delay, retry_after_seconds * (1 + _JITTER / 2 * self.random()))
