"""The facts as they come, their fold, and waiting for something to be true of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from local.demo.model import Fact, View, apply


class TooLateError(Exception):
    """Something did not become true in time; the text says what was seen instead."""


class Recording:
    """Takes facts from several watches; whoever draws or waits is told of each."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.view = View()
        self._clock = clock
        self._started = clock()
        self._listeners: list[Callable[[View, View, Fact], None]] = []
        self._changed = asyncio.Event()

    def now(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._started

    def listen(self, listener: Callable[[View, View, Fact], None]) -> None:
        """Have `listener(before, after, fact)` called for each fact from now on."""
        self._listeners.append(listener)

    def add(self, fact: Fact) -> None:
        """Take one more fact."""
        before, self.view = self.view, apply(self.view, fact)
        for listener in self._listeners:
            listener(before, self.view, fact)
        self._changed.set()

    async def until(self, condition: Callable[[View], bool], seconds: float, what: str) -> None:
        """Wait until `condition` holds.

        Raises:
            TooLateError: it did not within `seconds`; the text has the operator's reason.
        """
        deadline = self._clock() + seconds
        while not condition(self.view):
            self._changed.clear()
            try:
                async with asyncio.timeout(deadline - self._clock()):
                    await self._changed.wait()
            except TimeoutError:
                raise TooLateError(f"{what} within {seconds:g} s; seen instead: {_seen(self.view)}") from None


def _seen(view: View) -> str:
    pools = "; ".join(
        f"{pool.name}: {pool.ready} ready, {pool.pending} pending, {pool.leaving} leaving of {pool.desired} desired"
        + (f" ({pool.reason})" if pool.reason else "")
        for pool in view.pools
    )
    state = f"phase {view.status.phase or 'not reported'}" + (f", {view.status.reason}" if view.status.reason else "")
    return f"{state}; {pools}" if pools else f"{state}: is the operator running?"
