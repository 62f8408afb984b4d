"""The lag of the event loop: what holds it shows, for a minute."""

from __future__ import annotations

import asyncio

import pytest

from gpudask.metrics.server import EventLoopLag
from tests.virtual_time import VirtualLoop, in_virtual_time


def test_what_holds_the_loop_is_its_lag():
    async def measured() -> float:
        loop, lag = asyncio.get_running_loop(), EventLoopLag()
        assert isinstance(loop, VirtualLoop)
        assert lag.seconds == 0.0
        task = asyncio.create_task(lag.run())
        await asyncio.sleep(1.2)
        assert lag.seconds == 0.0, "nothing has held it yet"
        loop.hold(0.4)
        await asyncio.sleep(2.0)
        task.cancel()
        return lag.seconds

    assert in_virtual_time(measured()) == pytest.approx(0.1), "it comes at 1.6 s to what was due at 1.5 s"
