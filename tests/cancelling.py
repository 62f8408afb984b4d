"""What is told to end ends, also where what it waits for comes at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

_STEPS = 6  # so many turns of the event loop lie between something that happens and who waits for it


async def ends_at_any_moment(begin: Callable[[], Coroutine[Any, Any, Any]], happens: Callable[[], None]) -> None:
    """Cancel what `begin` makes, 0 to 5 turns of the event loop after that which it waits for.

    Raises:
        AssertionError: it went on, or ended as if nobody had told it to.
    """
    for steps in range(_STEPS):
        task = asyncio.create_task(begin())
        await _turns(20)  # it waits
        assert not task.done(), "it waits for nothing"
        happens()
        await _turns(steps)
        if task.done():
            return
        task.cancel()
        await asyncio.wait([task], timeout=60)
        assert task.cancelled(), f"cancelled {steps} turns after what it waits for, it goes on: {task}"


async def _turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)
