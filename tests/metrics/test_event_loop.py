"""The lag of the event loop: what holds it shows, for a minute."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from gpudask.metrics.event_loop import EventLoopLag
from tests.eventually import eventually_async


def _of(lag: EventLoopLag) -> Callable[[], Awaitable[float]]:
    async def look() -> float:
        return lag.seconds

    return look


async def test_what_holds_the_loop_is_its_lag():
    lag = EventLoopLag()
    assert lag.seconds == 0.0
    task = asyncio.create_task(lag.run())
    await asyncio.sleep(0.4)
    time.sleep(0.4)  # noqa: ASYNC251 - it holds the loop
    await eventually_async(_of(lag), lambda seconds: seconds >= 0.25, "the time for which it was held")
    task.cancel()
