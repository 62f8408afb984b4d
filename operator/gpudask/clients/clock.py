"""The operator's clock, which never jumps, and how far the API server's clock and this machine's are from it.

Three clocks tell different times. What lasts is measured by this process's own, which is monotonic. What the API
server stamps, and what has to outlive this process, is compared in the API server's time, as the `Date` of its answers
tells it. What people ask for by the clock, such as an override's `until`, is this machine's wall clock's.
docs/adr/0032-clocks.md has what follows from that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

# `Date` has whole seconds, and comes some time after it was written.
_DATE_SECONDS, _TOLERANCE_SECONDS = 1.0, 1.0
# So many answers in a row have to tell another time before it is believed: of several API servers one may be wrong.
_BELIEVED_AFTER = 3


class Clock:
    """Times are seconds since the epoch. `monotonic`: seconds of a clock that never jumps; `wall`: this machine's."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._began: float | None = None  # what `monotonic` has to be moved by; fixed when it is first asked for
        self._server: float | None = None  # the same, for the API server's time
        self._dissent = 0  # answers in a row that told another time

    def now(self) -> float:
        """The operator's time: as the API server's when first asked for, and as steady as `monotonic` from then on."""
        if self._began is None:
            self._began = self._wall() - self._monotonic() if self._server is None else self._server
        return self._monotonic() + self._began

    def server_ahead(self) -> float:
        """By how many seconds the API server's clock is ahead of `now`; it changes where that clock was set."""
        self.now()
        assert self._began is not None, "`now` fixed it"
        return 0.0 if self._server is None else self._server - self._began

    def wall_ahead(self) -> float:
        """By how many seconds this machine's wall clock is ahead of `now`."""
        return self._wall() - self.now()

    def asks(self) -> float:
        """A request is sent now; the moment, for `heard`."""
        return self._monotonic()

    def heard(self, date: str | None, asked_at: float) -> None:
        """An answer came whose `Date` is this, to a request that was sent at `asked_at`."""
        try:
            written = parsedate_to_datetime(date or "").timestamp()
        except (ValueError, TypeError, OverflowError):
            return
        least, most = written - self._monotonic(), written + _DATE_SECONDS - asked_at
        known = self._server
        if known is not None and least - _TOLERANCE_SECONDS <= known <= most + _TOLERANCE_SECONDS:
            self._dissent = 0
            return
        self._dissent += 1
        if known is None or self._dissent >= _BELIEVED_AFTER:
            self._server, self._dissent = (least + most) / 2, 0
