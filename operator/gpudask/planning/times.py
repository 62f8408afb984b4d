"""Moments as the status writes them: RFC 3339 in UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(now: float, *, to: str = "milliseconds") -> str:
    """A moment in seconds of the epoch, as text; `to` which of `datetime.isoformat`'s units."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec=to).replace("+00:00", "Z")


def epoch(text: str) -> float | None:
    """The same back; None where this is no such text, which somebody else may have written into a status."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
