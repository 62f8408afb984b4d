"""An event loop whose clock jumps to the next timer when nothing else is to be done: minutes pass at once."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):  # type: ignore[misc,valid-type]
    """Waits for nothing, and says how long it would have waited."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found:
            assert timeout is not None, "nothing is ready and no timer is set: whoever waits does so for ever"
            self.passed += max(0.0, timeout)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its `time()` begins at 0 and is the clock that what runs in it has to be given."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.passed

    def hold(self, seconds: float) -> None:
        """Let so many seconds pass in which nothing runs: what is due meanwhile comes late."""
        self._clock.passed += seconds


class VirtualPolicy(asyncio.DefaultEventLoopPolicy):
    """Makes such loops: for a module's fixture `event_loop_policy`, all of whose tests then run in virtual time."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return VirtualLoop()


def in_virtual_time(what: Coroutine[Any, Any, T]) -> T:
    """Run `what` to its end."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(what)


def now() -> float:
    """The running loop's time, in seconds."""
    return asyncio.get_running_loop().time()
