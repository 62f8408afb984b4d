"""How long tasks of one prefix take in one pool.

distributed's own mean is forgotten when one task runs past twice of it (sizes would flap), and it mixes CPU and GPU
workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from .pools import Pools

PREFIXES = 10_000  # remembered before those that have vanished are dropped
MEMORY = 50  # tasks; later ones weigh as if only so many came before, so that the mean follows a change


class Durations:
    """Mean seconds of compute by (prefix, pool)."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._means: dict[str, dict[str, tuple[float, int]]] = {}  # prefix -> pool -> (mean seconds, tasks)
        self._most = PREFIXES

    def learn(self, prefix: str, pool: str, startstops: Iterable[dict[str, Any]]) -> None:
        """Take a finished task into account."""
        seconds = 0.0
        for startstop in startstops:  # a plain loop: this runs for every task that ends
            if startstop["action"] == "compute":
                seconds += startstop["stop"] - startstop["start"]
        by_pool = self._means.setdefault(prefix, {})
        mean, n = by_pool.get(pool, (0.0, 0))
        n = min(n + 1, MEMORY)
        by_pool[pool] = (mean + (seconds - mean) / n, n)

    def mean(self, prefix: str, *, restricted: bool) -> float | None:
        """Return the mean seconds of a task of `prefix`, None when no such task has ended.

        The pools that the task is meant for count: annotated ones for a restricted task, the others for a plain one.
        Where it never ran there, any pool's mean is better than none.
        """
        by_pool = self._means.get(prefix)
        if not by_pool:
            return None
        meant = [m for pool, m in by_pool.items() if self._pools.is_fenced_pool(pool) == restricted]
        chosen = meant or list(by_pool.values())
        return sum(mean * n for mean, n in chosen) / sum(n for _, n in chosen)

    def forget_vanished(self, prefixes: Collection[str]) -> None:
        """Drop all prefixes but these once there are many, so that a scheduler that lives for months does not grow.

        It is done when as many have come as were left the last time: so it costs next to nothing for each.
        """
        if len(self._means) > self._most:
            self._means = {prefix: pools for prefix, pools in self._means.items() if prefix in prefixes}
            self._most = max(PREFIXES, 2 * len(self._means))
