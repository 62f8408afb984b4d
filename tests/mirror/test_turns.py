"""When what people made is looked at again: at the sooner of two times."""

from __future__ import annotations

import asyncio

import pytest

from gpudask.mirror.serving import _Queue
from tests.virtual_time import VirtualPolicy, now


@pytest.fixture(scope="module")
def event_loop_policy() -> VirtualPolicy:
    """An hour passes at once."""
    return VirtualPolicy()


@pytest.mark.parametrize("delays", [(3600.0, 0.01), (0.01, 3600.0)], ids=["sooner-last", "sooner-first"])
async def test_the_sooner_of_two_times_holds(delays: tuple[float, float]) -> None:
    queue = _Queue(now)
    for seconds in delays:
        queue.add_later("team/demo", seconds)
    async with asyncio.timeout(30):
        assert await queue.take() == "team/demo"


async def test_a_time_that_another_one_replaced_is_no_second_look() -> None:
    queue = _Queue(now)
    queue.add_later("team/demo", 0.02)
    queue.add_later("team/demo", 0.01)
    async with asyncio.timeout(30):
        await queue.take()
    queue.done("team/demo")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3600):
            await queue.take()
