"""The clocks beside the operator's own: the API server's and its machine's (docs/adr/0032-clocks.md)."""

from __future__ import annotations

from dataclasses import dataclass

_SET_SECONDS = 30.0  # by which two clocks disagree of which one was set
_STAMP_SECONDS = 1.0  # by which a stamp may seem to be in the future: it has whole seconds, and clocks differ by little


@dataclass(frozen=True, slots=True)
class Clocks:
    """By how many seconds the API server's clock, and this machine's, are ahead of the operator's own."""

    server_ahead: float = 0.0
    wall_ahead: float = 0.0

    def operator_time(self, stamp: float, now: float, *, machine_stamp: float | None = None) -> float:
        """The time `stamp`, by the API server's clock, on the operator's own, which says `now`.

        `machine_stamp`: the same by the clock of the operator's machine; None: then the two agreed. Where they agree on
        how long ago that was, fine. Else one was set since, while nobody looked: the shorter time is believed, for an
        operator begins soon after another ends, unless that is in the future.
        """
        time = stamp - self.server_ahead
        machine_time = (stamp if machine_stamp is None else machine_stamp) - self.wall_ahead
        if abs(time - machine_time) <= _SET_SECONDS:
            return time
        earlier, later = sorted((time, machine_time))
        return later if later <= now + _STAMP_SECONDS else earlier


AGREED = Clocks()  # all say the same
