"""A virtual clock: it jumps to the next callback."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class Clock:
    """Calls back in the order of time, and of asking where times are equal. `now` is seconds from the start."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, seconds: float, happens: Callable[[], None]) -> None:
        """Call `happens` in so many seconds, never before now."""
        heapq.heappush(self._due, (self.now + max(0.0, seconds), next(self._order), happens))

    def step(self) -> bool:
        """Let the next thing happen; whether there was one."""
        if not self._due:
            return False
        self.now, _, happens = heapq.heappop(self._due)
        happens()
        return True
