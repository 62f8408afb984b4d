"""Waiting for a condition, with a deadline and a report of what was seen when it passes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    check: Callable[[], T], what: str, *, seconds: float = 60, show: Callable[[], object] | None = None
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
