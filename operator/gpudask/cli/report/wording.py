"""Times, durations, hours and shares as the page writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_LONG_SECONDS = 10  # from here on a tenth of a second is of no interest
_ALL = 100
NOTHING = "\N{EN DASH}"


def stamp(at: float | None) -> str:
    """A time in UTC: 26 Nov 2026, 22:40:05."""
    if at is None:
        return NOTHING
    moment = datetime.fromtimestamp(at, UTC)
    return f"{moment.day} {moment:%b %Y, %H:%M:%S}"


def duration(seconds: float | None) -> str:
    """A length of time in one unit: 0.4 s, 12 s, 3.5 min, 2.1 h, 3.2 d."""
    if seconds is None:
        return NOTHING
    for length, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= _LONG_SECONDS else f"{seconds:.1f} s"


def percent(share: float) -> str:
    """A share from 0 to 1 as whole percent; what is not nothing is never 0, and what is not all never 100."""
    whole = round(share * _ALL)
    if whole == 0 and share > 0:
        return "<1%"
    return ">99%" if whole == _ALL and share < 1 else f"{whole}%"


def hours(amount: Decimal) -> str:
    """GPU-hours, with marks between thousands."""
    return f"{amount:,.2f}"


def money(amount: Decimal | None, currency: str) -> str:
    """Money with its currency."""
    return "" if amount is None else f"{amount:,.2f} {currency}"


def count(number: float, one: str, several: str = "") -> str:
    """`1 pod`, `3 pods`."""
    return f"{number:,.0f} {one if number == 1 else several or one + 's'}"
