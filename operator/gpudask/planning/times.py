"""Moments as the status writes them: RFC 3339 in UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(now: float, *, to: str = "milliseconds") -> str:
    """A moment in seconds of the epoch, as text; `to` which of `datetime.isoformat`'s units."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec=to).replace("+00:00", "Z")


def epoch(text: str) -> float:
    """The same back.

    Raises:
        ValueError: this is no such text.
    """
    return datetime.fromisoformat(text).timestamp()
