"""How long to wait before something that failed is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

_JITTER = 0.5  # so much of a delay, at most, is chance: what failed together is not tried again together


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
