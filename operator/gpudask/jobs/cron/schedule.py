"""The times of a schedule: cron's five fields, in a time zone. CronSim computes them.

The grammar is that of a batch/v1 CronJob: numbers, names, ranges, lists, steps, `?`, and macros such as @hourly. What
CronSim knows besides (seconds, `L`, `#`) is refused, and as there a day of the month and a day of the week are one of
the two, unless either is a star.

Where clocks are set, be it by an hour or by half of one, times are as Debian's cron has them: a schedule of fixed hours
and minutes has each of its times once, moved to the end of what clocks leave out, and the first time of what they show
twice. One with a star in these two fields goes on by what the clock shows.
"""

from __future__ import annotations

import functools
import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from gpudask.api.cron_job import SCHEDULE_ADVICE, TIME_ZONE_ADVICE

MINUTE_SECONDS = 60.0
_LONGEST_CHANGE = timedelta(hours=3)  # of clocks: two hours, at Troll station
# So many passed-over times are counted at once: a schedule of every minute, after a year, has half a million.
MOST_MISSED = 100
_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DAYS = "sun|mon|tue|wed|thu|fri|sat"
# Of each field its name, the names that its numbers have, and the whole range.
_FIELDS = (
    ("minute", "", (0, 59)),
    ("hour", "", (0, 23)),
    ("day-of-month", "", (1, 31)),
    ("month", _MONTHS, (1, 12)),
    ("day-of-week", _DAYS, (0, 6)),
)
_DAY_FIELDS = ("day-of-month", "day-of-week")
_LAST_TIME = datetime(9000, 1, 1, tzinfo=UTC).timestamp()


class ScheduleError(ValueError):
    """A schedule that has no meaning; the message says what to write, and where. `is_zone`: its zone has none."""

    def __init__(self, message: str, *, is_zone: bool = False) -> None:
        super().__init__(message)
        self.is_zone = is_zone


@dataclass(frozen=True)
class Schedule:
    """A schedule; times are seconds since the epoch. `expression`: five fields as CronSim reads them."""

    expression: str
    zone: ZoneInfo

    @property
    def is_fixed(self) -> bool:
        """Whether its hours and minutes are numbers: then it has each of its times once."""
        minute, hour, *_ = self.expression.split()
        return not minute.startswith("*") and not hour.startswith("*")

    def after(self, time: float) -> float | None:
        """The first time after `time`; None: there is none in the next fifty years."""
        return next(self._from(time), None)

    def newest(self, after: float, until: float) -> float | None:
        """The last time after `after` and not after `until`; None: there is none."""
        found = self.after(after)
        if found is None or found > until:
            return None
        # Whether a time follows is asked some twenty times, and not each of them looked at.
        low, high = int(found // MINUTE_SECONDS), int(until // MINUTE_SECONDS) + 1
        while high - low > 1:
            middle = (low + high) // 2
            follows = self.after(middle * MINUTE_SECONDS - 1.0)
            if follows is not None and follows <= until:
                low = middle
            else:
                high = middle
        return self.after(low * MINUTE_SECONDS - 1.0)

    def count(self, after: float, before: float) -> int:
        """How many times there are between the two, themselves excluded; at most `MOST_MISSED` + 1 are counted."""
        count = 0
        for time in self._from(after):
            if time >= before or count > MOST_MISSED:
                break
            count += 1
        return count

    def _from(self, time: float) -> Iterator[float]:
        """The times after `time`, one after another.

        CronSim goes through what a clock without a zone shows: with one it steps over minutes where clocks are set by
        half an hour, or at midnight. When the zone's clocks show that is found here.
        """
        if not 0.0 <= time < _LAST_TIME:
            return
        begin = self._shown(int(time))
        if self._shown(int(time) + _LONGEST_CHANGE.seconds) - begin < _LONGEST_CHANGE:
            begin -= _LONGEST_CHANGE  # clocks are set back soon, and then show once more what has passed
        last, found = time, list[float]()  # `found`: a heap, since second times come after others' first ones
        try:
            for shown in CronSim(self.expression, begin):
                times = self._times_of(shown)
                for each in times:
                    heapq.heappush(found, each)
                while times and found and found[0] <= times[0]:
                    if (soonest := heapq.heappop(found)) > last:
                        yield (last := soonest)
        except (OverflowError, CronSimError):
            return

    def _shown(self, time: float) -> datetime:
        """What clocks of the zone show, without the zone."""
        return datetime.fromtimestamp(time, UTC).astimezone(self.zone).replace(tzinfo=None)

    def _times_of(self, shown: datetime) -> list[float]:
        """The times at which clocks of the zone show this, as the schedule has them."""
        while (times := self._times_as_shown(shown)) == [] and self.is_fixed:
            shown += timedelta(minutes=1)
        return times[:1] if self.is_fixed else times

    def _times_as_shown(self, shown: datetime) -> list[float]:
        """None in what clocks leave out, two in what they show twice. The first never falls as `shown` rises."""
        times = {shown.replace(tzinfo=self.zone, fold=fold).timestamp() for fold in (0, 1)}
        return sorted(time for time in times if self._shown(time) == shown)


@functools.lru_cache(maxsize=1024)
def parse_schedule(schedule: str, time_zone: str) -> Schedule:
    """The schedule that a spec has.

    Raises:
        ScheduleError: it has no meaning.
    """
    if time_zone not in _zones():
        text = f"spec.timeZone: {time_zone!r} is no time zone: write its IANA name, such as Europe/Vienna or Etc/UTC"
        raise ScheduleError(text, is_zone=True)
    expression = _expression(schedule)
    zone = ZoneInfo(time_zone)
    try:
        CronSim(expression, datetime(2024, 1, 1, tzinfo=zone))
    except CronSimError as error:
        text = f"spec.schedule: {schedule!r} never comes: no month that it names has such a day"
        raise ScheduleError(text) from error
    return Schedule(expression, zone)


@functools.cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _expression(schedule: str) -> str:
    """Five fields as CronSim reads them."""
    if "TZ=" in schedule.upper():
        raise ScheduleError(f"spec.schedule: {TIME_ZONE_ADVICE}")
    text = schedule.strip().lower()
    if text.startswith("@"):
        if (expression := _MACROS.get(text)) is None:
            raise ScheduleError(f"spec.schedule: {schedule!r} is not known: {SCHEDULE_ADVICE}")
        return expression
    written = text.split()
    if len(written) != len(_FIELDS):
        raise ScheduleError(f"spec.schedule: {schedule!r} has {len(written)} fields: {SCHEDULE_ADVICE}")
    return " ".join(_field(text, *kind) for text, kind in zip(written, _FIELDS, strict=True))


def _field(text: str, name: str, names: str, span: tuple[int, int]) -> str:
    return ",".join(_item(item, name, names, span) for item in text.split(","))


def _item(item: str, name: str, names: str, span: tuple[int, int]) -> str:
    """One item of a field's list: a star, a value or a range, with or without a step."""
    match = re.fullmatch(r"(\*|\?|([0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?)(?:/([0-9]{1,2}))?", item)
    if match is None:
        raise ScheduleError(f"spec.schedule: {item!r} is no {name}: {SCHEDULE_ADVICE}")
    whole, first, last, step = match.groups()
    if step is not None and int(step) == 0:
        raise ScheduleError(f"spec.schedule: {item!r}, the step of the {name}, is 0: write 1 or more")
    steps = f"/{step}" if step is not None else ""
    if first is None:
        # A day with a step is no star any more: the other field of days counts beside it, not within it.
        is_star = name not in _DAY_FIELDS or step is None or int(step) == 1
        return f"*{steps}" if is_star else f"{span[0]}-{span[1]}{steps}"
    values = [_value(part, item, name, names, span) for part in (first, last) if part is not None]
    if values != sorted(values):
        raise ScheduleError(f"spec.schedule: {item!r}, the {name}, ends before it begins: write the lower one first")
    return f"{whole}{steps}"


def _value(text: str, item: str, name: str, names: str, span: tuple[int, int]) -> int:
    known = names.split("|") if names else []
    value = known.index(text) + span[0] if text in known else int(text) if text.isdecimal() else -1
    most = span[1] + (name == "day-of-week")  # 7 is Sunday, too
    if not span[0] <= value <= most:
        raise ScheduleError(f"spec.schedule: {item!r} is no {name}: {span[0]} to {most}{' or a name' if names else ''}")
    return value
