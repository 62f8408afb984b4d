"""Waiting for a condition, with a deadline and a report of what was seen when it passes.

What is async goes by the event loop's clock: in virtual time (`tests.virtual_time`) so do its deadlines.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


def eventually(
    check: Callable[[], T], what: str, *, seconds: float = 120, show: Callable[[], object] | None = None
) -> T:
    """Call `check` until it gives something true, and return that.

    `show` gives what to print when the deadline passes; by default what `check` gave last.
    """
    deadline = time.monotonic() + seconds
    while True:
        seen = check()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}. Seen: {show() if show else seen}")
        time.sleep(0.1)


def steadily(check: Callable[[], bool], what: str, *, seconds: float, show: Callable[[], object] | None = None) -> None:
    """Call `check` for so many seconds; it must hold all the time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not check():
            raise AssertionError(f"did not stay so for {seconds:g} s: {what}. Seen: {show() if show else 'no'}")
        time.sleep(0.1)


async def eventually_async(
    look: Callable[[], Awaitable[T]], accept: Callable[[T], Any], what: str, seconds: float = 120
) -> T:
    """What `look` finds once it is accepted; after `seconds` an AssertionError with what was seen instead."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    while True:
        found = await look()
        if accept(found):
            return found
        if clock() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}; seen last: {found!r}")
        await asyncio.sleep(0.05)


async def steadily_async(look: Callable[[], Awaitable[T]], wanted: T, seconds: float) -> None:
    """`look()` is `wanted` all the time."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    while clock() < deadline:
        found = await look()
        assert found == wanted, f"{found} instead of {wanted}"
        await asyncio.sleep(0.1)


async def at_rest_async(look: Callable[[], Awaitable[T]], *, for_seconds: float, within: float = 60) -> T:
    """What `look` finds once that has not changed for so long; an AssertionError where it goes on changing."""
    clock = asyncio.get_running_loop().time
    deadline, since, found = clock() + within, clock(), await look()
    while clock() - since < for_seconds:
        if clock() > deadline:
            raise AssertionError(f"it still changes after {within:g} s; seen last: {found!r}")
        await asyncio.sleep(0.1)
        if (last := await look()) != found:
            found, since = last, clock()
    return found
