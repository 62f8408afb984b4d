"""A rate limiter: so many turns a second. What is not urgent waits for its own, so that the urgent need not.

A thousand clusters whose counts move would otherwise ask for more passes and statuses than there is CPU for them, here
and in the API server, and a GPU task's pod would wait among them.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class RateLimiter:
    """`a_second` turns each second, evenly spread; after a rest as many as `at_once` without a pause."""

    a_second: float
    at_once: float = 1.0
    _free_at: float = field(default=0.0, init=False)

    def take(self, now: float, turns: float = 1.0) -> float:
        """Take the next turn, or several; when it is, `now` at the soonest. `now` is seconds on any one clock."""
        turn = self.next(now)
        self._free_at = max(now, self._free_at) + turns / self.a_second
        return turn

    def next(self, now: float) -> float:
        """When the next turn is, which is not taken."""
        return max(now, self._free_at - (self.at_once - 1) / self.a_second)
