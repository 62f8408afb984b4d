"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

_POLL_SECONDS = 0.02


async def until(
    condition: Callable[[], bool] | Callable[[], Awaitable[bool]], what: str, *, seconds: float, show: str = ""
) -> None:
    """Wait until `condition()` holds.

    Raises:
        TimeoutError: not within `seconds`; the message says what was waited for, and `show`.
    """
    deadline = time.monotonic() + seconds
    while True:
        holds = condition()
        if holds if isinstance(holds, bool) else await holds:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}{'; ' if show else ''}{show}")
        await asyncio.sleep(_POLL_SECONDS)
