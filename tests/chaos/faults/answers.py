"""Faults in the API server's answers: refusals, none, late, too old, or with the wrong time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.chaos.target import Target

_HOUR = 3600.0


@contextmanager
def too_many(target: Target, pick: float) -> Iterator[str]:
    """429, for some requests or all."""
    with _weather(target, refused=(429, _share(pick))):
        yield f"{_share(pick):.0%} of requests"


@contextmanager
def failing(target: Target, pick: float) -> Iterator[str]:
    """500, for some requests or all."""
    with _weather(target, refused=(500, _share(pick))):
        yield f"{_share(pick):.0%} of requests"


@contextmanager
def lost(target: Target, pick: float) -> Iterator[str]:
    """Writes are done, and the connection ends without an answer."""
    with _weather(target, losing=_share(pick)):
        yield f"{_share(pick):.0%} of writes"


@contextmanager
def slow(target: Target, pick: float) -> Iterator[str]:
    """Each request takes seconds: up to more than it takes to renew a Lease."""
    seconds = 0.5 + 4 * pick
    with _weather(target, slow_seconds=seconds):
        yield f"{seconds:.1f} s for each request"


@contextmanager
def cut(target: Target, _pick: float) -> Iterator[str]:
    """Every connection breaks, once."""
    yield f"{target.proxy.cut()} connections"


@contextmanager
def watches_expired(target: Target, _pick: float) -> Iterator[str]:
    """Every watch ends with 410, and new ones do for a while."""
    with _weather(target, expired=True):
        yield f"{target.proxy.expire()} watches"


@contextmanager
def watches_behind(target: Target, _pick: float) -> Iterator[str]:
    """Watches tell late what happened, though requests are answered at once."""
    with _weather(target, behind=True):
        yield "all watches"


@contextmanager
def clock_stepped(target: Target, pick: float) -> Iterator[str]:
    """The API server's clock, as its answers tell it, is up to an hour ahead or behind."""
    seconds = (2 * pick - 1) * _HOUR
    with _weather(target, clock_ahead=seconds):
        yield f"by {seconds:+.0f} s"


@contextmanager
def _weather(target: Target, **values: Any) -> Iterator[None]:
    weather = target.proxy.weather
    calm = {name: getattr(weather, name) for name in values}
    try:
        for name, value in values.items():
            setattr(weather, name, value)
        yield
    finally:
        for name, value in calm.items():
            setattr(weather, name, value)


def _share(pick: float) -> float:
    """In one of three cases all of them."""
    return 1.0 if pick > 2 / 3 else 0.2 + 0.8 * pick
