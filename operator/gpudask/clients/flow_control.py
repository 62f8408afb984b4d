"""Flow control: a fair queue, which bounds what runs at the same time, rate limiters, and exponential back-off.

The queue goes round robin over the namespaces that wait, and within each over its clusters. A plain semaphore serves
first come, first served: 5,000 creations of one cluster would stand before another's first GPU pod. A round over
clusters alone leaves a thousand clusters of one namespace before the one of another. The API server's own priority and
fairness cannot tell them apart, since the operator is one user to it.

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
    """The namespace of a value of `CLUSTER`: all its clusters share one place in the round."""
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


# By namespace and by cluster: at each level, the next one stands first.
_Round = OrderedDict[str, OrderedDict[str, _Waiting]]


class FairQueue:
    """Admits `limit` requests at a time: where some requests hang, the others go on.

    `per_cluster`: of them at most so many are one cluster's. `per_namespace`: one namespace's; `limit` without.
    """

    def __init__(self, limit: int, per_cluster: int, per_namespace: int | None = None) -> None:
        self._free = limit
        self._per_cluster = per_cluster
        self._per_namespace = limit if per_namespace is None else per_namespace
        self._active: Counter[str] = Counter()  # by cluster, and by namespace
        self._waiting: _Round = OrderedDict()

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a slot."""
        return sum(
            len(each.first) + len(each.bulk) for clusters in self._waiting.values() for each in clusters.values()
        )

    @asynccontextmanager
    async def slot(self, *, bulk: bool = False) -> AsyncGenerator[None]:
        """Wait for a slot for the running task's cluster, and hold it. `bulk`: after its other waiting requests."""
        cluster = CLUSTER.get()
        await self._acquire(cluster, bulk=bulk)
        try:
            yield
        finally:
            self._release(cluster)

    async def slot_for_one_step(self) -> None:
        """Wait for a slot for the running task's cluster, and hold it for one step of the event loop.

        It is for work of the processor: what the task does until it next waits is done while it holds the slot.
        """
        cluster = CLUSTER.get()
        await self._acquire(cluster, bulk=False)
        asyncio.get_running_loop().call_soon(self._release, cluster)

    async def _acquire(self, cluster: str, *, bulk: bool) -> None:
        slot = asyncio.get_running_loop().create_future()
        clusters = self._waiting.setdefault(namespace_of(cluster), OrderedDict())
        waiting = clusters.setdefault(cluster, _Waiting())
        (waiting.bulk if bulk else waiting.first).append(slot)
        self._admit()
        try:
            await slot
        except asyncio.CancelledError:
            if not slot.cancelled():  # admitted in the moment in which it was cancelled
                self._release(cluster)
            raise

    def _release(self, cluster: str) -> None:
        self._free += 1
        for key in (cluster, _total(cluster)):
            self._active[key] -= 1
            if not self._active[key]:
                del self._active[key]
        self._admit()

    def _admit(self) -> None:
        while self._free and (cluster := self._next()) is not None:
            slot = self._pop(cluster)
            if not slot.cancelled():
                self._free -= 1
                self._active.update((cluster, _total(cluster)))
                slot.set_result(None)

    def _next(self) -> str | None:
        """The first cluster that waits and may have another slot, of the first such namespace."""
        for namespace, clusters in self._waiting.items():
            if self._active[_total(namespace)] < self._per_namespace:
                found = next((cluster for cluster in clusters if self._active[cluster] < self._per_cluster), None)
                if found is not None:
                    return found
        return None

    def _pop(self, cluster: str) -> asyncio.Future[None]:
        """Take out the next waiting request of `cluster`, which stands last from now on, as does its namespace."""
        namespace = namespace_of(cluster)
        clusters = self._waiting[namespace]
        waiting = clusters[cluster]
        slot = waiting.pop()
        clusters.move_to_end(cluster)
        self._waiting.move_to_end(namespace)
        if not waiting:
            del clusters[cluster]
        if not clusters:
            del self._waiting[namespace]
        return slot


def _total(cluster: str) -> str:
    """The key under which the slots of a whole namespace are counted: no cluster's key ends so."""
    return f"{namespace_of(cluster)}/*"


@dataclass
class RateLimiter:
    """A token bucket: `per_second` tokens each second, evenly spread, and a `burst` of so many after a rest.

    `full_at`: when every token that was reserved has come back.
    """

    per_second: float
    burst: float = 1.0
    full_at: float = field(default=0.0, init=False)

    def reserve(self, now: float, tokens: float = 1.0) -> float:
        """Reserve tokens; the time from which the caller may act. `now`: seconds on any one clock.

        As `Reserve` of Go's rate limiters (https://pkg.go.dev/golang.org/x/time/rate): several tokens for one thing
        hold back those who come after it, not itself.
        """
        at = self.available_at(now)
        self.full_at = max(now, self.full_at) + tokens / self.per_second
        return at

    def available_at(self, now: float) -> float:
        """When the next token is there, `now` at the soonest; nothing is reserved."""
        return max(now, self.full_at - (self.burst - 1) / self.per_second)


@dataclass
class FairRateLimiter:
    """`per_second` tokens each second for all namespaces together: only who has many clusters waits for them.

    A namespace's tokens are as far apart as there are namespaces with reservations. What is reserved stays so, so that
    where another namespace begins to reserve there are more than `per_second` for a while: of n that begin one after
    another, `per_second` times 1 + 1/2 + ... + 1/n at most. `burst`: as `RateLimiter`'s, of each namespace.
    """

    per_second: float
    burst: float = 1.0
    _limiters: dict[str, RateLimiter] = field(default_factory=dict, init=False)

    def reserve(self, namespace: str, now: float) -> float:
        """Reserve a token of `namespace`; the time from which the caller may act, as `RateLimiter.reserve`."""
        limiter = self._limiters.pop(namespace, None) or RateLimiter(self.per_second, self.burst)
        self._limiters = {key: other for key, other in self._limiters.items() if other.full_at > now}
        self._limiters[namespace] = limiter
        tokens = len(self._limiters)
        limiter.burst = 1 + (self.burst - 1) * tokens  # of reservations, each of so many tokens
        return limiter.reserve(now, tokens)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off: twice as long after each failure, from `first_seconds` to `last_seconds`, with jitter.

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
