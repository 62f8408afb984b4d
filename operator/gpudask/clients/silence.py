"""The last while in which a watch told nothing. What it tells just after that may have happened at any time of it.

A connection that was cut, a process that was frozen and an API server that hung are all seen alike: nothing comes, and
then all at once what came meanwhile. After the first event of that the others are no newer than it.
"""

from __future__ import annotations

import math

_LEAST_SECONDS = 1.0  # less is none
_CAUGHT_UP_SECONDS = 5.0  # by when all that came meanwhile is told


class Silence:
    """It. Times are seconds by the operator's clock."""

    def __init__(self) -> None:
        self._began = self._ended = -math.inf

    def ends(self, known_at: float, now: float) -> None:
        """Something is told now, and what there is was last known at `known_at`."""
        if now - known_at >= _LEAST_SECONDS:
            self._began, self._ended = known_at, now

    def known_since(self, known_at: float, now: float) -> float:
        """The time after which what is told now has happened; `known_at`: when something was told last."""
        return self._began if now - self._ended < _CAUGHT_UP_SECONDS else known_at
