"""Who may read the metrics now: bounded for each address, so that one who never pauses keeps no Prometheus out.

    n                     addresses that are told apart now, at most ADDRESSES, and one more for all others
    one address' rate     _PER_SECOND / n: together they cost what one alone may
    one address at once   _AT_ONCE

An address keeps its place while it reads once a minute. Those that find none share the last place: so a table of
addresses, which anybody can have many of, stays small, and who was there before them reads on. No I/O here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from gpudask.clients.flow_control import RateLimiter

ADDRESSES = 16  # so one that reads every ten seconds is within its rate, whatever the others do
# With a thousand clusters a reading takes a tenth of a second of the event loop.
_PER_SECOND, _BURST = 2.0, 4.0
_AT_ONCE = 2  # of one address: a slow reader costs a connection, and no time
_REMEMBERED_SECONDS = 60.0  # after a reading: longer than Prometheus waits for the next one, as a rule
_OTHERS = ""


@dataclass(slots=True)
class _Place:
    limiter: RateLimiter = field(default_factory=lambda: RateLimiter(_PER_SECOND, _BURST))
    until: float = 0.0  # it is remembered, where nobody reads


class Readers:
    """The addresses that read, or have read not long ago."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._active: Counter[str] = Counter()  # readings under way by place
        self._others: Counter[str] = Counter()  # of those at the last place, by address

    @property
    def remembered(self) -> AbstractSet[str]:
        """The addresses that are told apart; an empty one stands for all others."""
        return self._places.keys()

    def admit(self, address: str, now: float) -> bool:
        """Whether `address` may read now, by any one clock in seconds; if so, it reads until it is released."""
        self._places = {key: place for key, place in self._places.items() if place.until > now or self._active[key]}
        key = self._key(address)
        place = self._places.get(key) or _Place()
        if self._active[key] >= _AT_ONCE or place.limiter.available_at(now) > now:
            return False
        self._places[key] = place
        place.limiter.reserve(now, tokens=len(self._places))
        place.until = max(now + _REMEMBERED_SECONDS, place.limiter.full_at)
        self._active[key] += 1
        if key == _OTHERS:
            self._others[address] += 1
        return True

    def release(self, address: str) -> None:
        """Note that a reading of `address` has ended."""
        key = _OTHERS if self._others[address] else address
        self._others -= Counter({address: 1})  # and keeps none that does not read
        self._active -= Counter({key: 1})

    def _key(self, address: str) -> str:
        has_room = len(self._places.keys() - {_OTHERS}) < ADDRESSES
        return address if address in self._places or has_room else _OTHERS
