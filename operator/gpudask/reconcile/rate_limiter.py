"""Rate limiters: so many turns a second. What is not urgent waits for its own, so that the urgent need not.

A thousand clusters whose counts move would otherwise ask for more passes and statuses than there is CPU for them, here
and in the API server, and a GPU task's pod would wait among them.
"""

from __future__ import annotations

from dataclasses import dataclass, field


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
