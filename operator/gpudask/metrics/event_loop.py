"""The lag of the event loop: how late it comes to what is due, since something else held it."""

from __future__ import annotations

import asyncio
from collections import deque

_EVERY_SECONDS = 0.5
_KEPT = 120  # a minute of them, since the metrics are read a few times a minute


class EventLoopLag:
    """Measures the lag while `run` runs. `seconds`: the most in the last minute."""

    def __init__(self) -> None:
        self._late: deque[float] = deque(maxlen=_KEPT)

    @property
    def seconds(self) -> float:
        """The most by which the event loop was late in the last minute."""
        return max(self._late, default=0.0)

    async def run(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _EVERY_SECONDS
            await asyncio.sleep(_EVERY_SECONDS)
            self._late.append(max(0.0, loop.time() - due))
