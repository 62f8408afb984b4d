"""The counts in the clusters' statuses: when each was seen to come, and of this process's own, what it knows beyond.

It outlives the clusters' loops, of which there are none while another operator leads. Times are seconds by the clock
that is given, which is this process's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpudask.api import Json
from gpudask.planning.ledger.counting import Ledger
from gpudask.planning.ledger.takeover import Arrival


@dataclass(frozen=True, slots=True)
class OwnCount:
    """The last count that was sent here: the status' `countedAt`, and `at` which time by the operator's clock.

    `ledger`: what it was made of, or a later one that was not sent.
    """

    told: str
    at: float
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class _Seen:
    """A status' `countedAt`, when it came, if it was seen to, and when it was last seen."""

    told: str
    came: Arrival | None
    last: float


class LastCounts:
    """The last counts of the clusters, by `owner_key`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self._own: dict[str, tuple[OwnCount, float]] = {}  # and when it was, by this clock

    def note(self, key: str, body: Json) -> Arrival | None:
        """Note the count in a cluster's status; when it came, where it is another one than before.

        So the next leader need not ask any other clock for that.
        """
        told, known, now = _counted_at(body), self._seen.get(key), self._clock()
        is_new = known is not None and known.told != told
        came = known.came if known is not None else None
        if known is not None and is_new:
            came = Arrival(now, after=known.last)
        self._seen[key] = _Seen(told, came, now)
        return came if is_new else None

    def keep(self, key: str, own: OwnCount, ahead: float) -> None:
        """Keep what a loop here has counted. `ahead`: by how many seconds the operator's clock is ahead of this one."""
        self._own[key] = own, own.at - ahead

    def take(self, key: str) -> tuple[Arrival | None, OwnCount | None]:
        """When the count in a status was seen to come; and our own last one, which may be that, or come yet."""
        seen, (own, at) = self._seen[key], self._own.pop(key, (None, 0.0))
        return Arrival(at, at) if own is not None and own.told == seen.told else seen.came, own

    def forget(self, key: str) -> Arrival | None:
        """Forget a cluster that is gone; when its last count was seen to come."""
        came = self.take(key)[0] if key in self._seen else None
        self._seen.pop(key, None)
        return came


def _counted_at(body: Json) -> str:
    status = body.get("status")
    text = status.get("countedAt") if isinstance(status, dict) else ""
    return text if isinstance(text, str) else ""
