"""The operator's clock, which never jumps, and how far the API server's clock and this machine's are from it.

Three clocks differ. Durations are measured by this process's own, which is monotonic. What the API server stamps, and
what has to outlive this process, is compared in the API server's time, as the header `Date` of its answers has it; when
GPU-seconds were counted last, in this machine's wall time as well. What people set by the clock, such as an override's
`until`, is in that alone.
docs/adr/0032-clocks.md has what follows from that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

# `Date` has whole seconds, and comes some time after it was written. So an answer tells between which bounds the time
# lies; many answers, at different parts of a second, tell it to some hundredths.
_DATE_SECONDS, _TOLERANCE_SECONDS = 1.0, 1.0
# By which two clocks may differ in speed, so that older bounds are wider: where NTP sets a clock slowly, it changes by
# half a millisecond a second at most.
_DRIFT = 5e-4
# So many answers in a row have to have another time before it is believed: of several API servers one may be wrong.
_BELIEVED_AFTER_ANSWERS = 3
_ANSWER_SECONDS = 1.0  # an API server that works answers somebody within so long
_SILENT_SECONDS = 1.0  # a watch tells nothing for so long, or it is no silence
_CAUGHT_UP_SECONDS = 5.0  # by when all is told that came meanwhile


class Clock:
    """Times are seconds since the epoch. `monotonic`: seconds of a clock that never jumps; `wall`: this machine's."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._offset: float | None = None  # of `now` from `monotonic`; fixed at the first call of `now`
        # The same for the API server's time: the bounds between which it lies, and when that was learnt.
        self._bounds: tuple[float, float] | None = None
        self._learnt_at = 0.0
        self._deviations = 0  # answers in a row that had another time
        self._answered = self._unanswered = -math.inf  # by `monotonic`

    def now(self) -> float:
        """The operator's time: the API server's at the first call, and as steady as `monotonic` from then on."""
        if self._offset is None:
            self._offset = self._wall() - self._monotonic() if self._bounds is None else self._server_offset
        return self._monotonic() + self._offset

    def server_ahead(self) -> float:
        """By how many seconds the API server's clock is ahead of `now`; it changes where that clock was set.

        And by less than a second while its answers tell more exactly what it is.
        """
        self.now()
        assert self._offset is not None, "`now` fixed it"
        return 0.0 if self._bounds is None else self._server_offset - self._offset

    def wall_ahead(self) -> float:
        """By how many seconds this machine's wall clock is ahead of `now`."""
        return self._wall() - self.now()

    def request_sent(self) -> float:
        """The time of a request that is sent now, for `response_received`."""
        return self._monotonic()

    def response_received(self, date: str | None, sent_at: float) -> None:
        """Learn the API server's time from the header `Date` of an answer to a request that was sent at `sent_at`."""
        self._answered = self._monotonic()
        try:
            written = parsedate_to_datetime(date or "").timestamp()
        except (ValueError, TypeError, OverflowError):
            return
        now = self._monotonic()
        least, most = written - now, written + _DATE_SECONDS - sent_at
        if self._bounds is not None:
            if least - _TOLERANCE_SECONDS <= self._server_offset <= most + _TOLERANCE_SECONDS:
                self._narrow(least, most, now)
                return
            self._deviations += 1
            if self._deviations < _BELIEVED_AFTER_ANSWERS:
                return
        self._bounds, self._learnt_at, self._deviations = (least, most), now, 0

    def response_missed(self, sent_at: float, *, cancelled: bool = False) -> None:
        """Learn that a request that was sent at `sent_at` failed without an answer, or was `cancelled` before one."""
        now = self._monotonic()
        if self._answered < sent_at and not (cancelled and now - sent_at < _ANSWER_SECONDS):
            self._unanswered = now

    def unanswered_at(self) -> float:
        """When the API server last was found to answer nobody; -inf: never.

        Until then it did not work, and so nothing of it changed; or nothing reached it from here.
        """
        return self.now() - self._monotonic() + self._unanswered

    @property
    def _server_offset(self) -> float:
        """The offset that is most likely."""
        assert self._bounds is not None, "no answer has come"
        return sum(self._bounds) / 2

    def _narrow(self, least: float, most: float, now: float) -> None:
        """Take the bounds of an answer that agrees into account: those that both allow, or what lies between them."""
        assert self._bounds is not None, "no answer has come"
        drift = (now - self._learnt_at) * _DRIFT
        low, high = sorted((max(self._bounds[0] - drift, least), min(self._bounds[1] + drift, most)))
        self._bounds, self._learnt_at, self._deviations = (low, high), now, 0


class Silence:
    """The last while in which a watch told nothing. What it tells just after that may have happened at any time of it.

    A connection that was cut, a process that was frozen and an API server that hung are all seen alike: nothing comes,
    and then all at once what came meanwhile. After the first event of that the others are no newer than it. Times are
    seconds by the operator's clock.
    """

    def __init__(self) -> None:
        self._began = self._ended = -math.inf

    def ends(self, known_at: float, now: float) -> None:
        """Something is told now, and what there is was last known at `known_at`."""
        if now - known_at >= _SILENT_SECONDS:
            self._began, self._ended = known_at, now

    def known_since(self, known_at: float, now: float) -> float:
        """The time after which what is told now has happened; `known_at`: when something was told last."""
        return self._began if now - self._ended < _CAUGHT_UP_SECONDS else known_at
