"""Times of schedules: the grammar, time zones, and the two hours in which clocks are set."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudask.jobs.cron.schedule import MOST_MISSED, ScheduleError, parse_schedule

VIENNA = "Europe/Vienna"


def at(text: str) -> float:
    """Seconds since the epoch of a time in UTC."""
    return datetime.fromisoformat(f"{text}+00:00").timestamp()


def times(schedule: str, zone: str, after: str, amount: int) -> list[str]:
    """The next times, in UTC."""
    known, found, last = parse_schedule(schedule, zone), [], at(after)
    for _ in range(amount):
        last = known.after(last) or 0.0
        found.append(datetime.fromtimestamp(last, UTC).strftime("%m-%dT%H:%M"))
    return found


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("*/20 * * * *", ["11-27T00:20", "11-27T00:40"]),
        ("30 6 * * mon-fri", ["11-27T06:30", "11-30T06:30"]),
        ("30 6 * * MON,Tue", ["11-30T06:30", "12-01T06:30"]),
        ("0 0 1 JAN ?", ["01-01T00:00", "01-01T00:00"]),
        ("5 4 * * 0", ["11-29T04:05", "12-06T04:05"]),
        ("5 4 * * 7", ["11-29T04:05", "12-06T04:05"]),
        ("10/25 0 * * *", ["11-27T00:10", "11-27T00:35"]),
        ("@hourly", ["11-27T01:00", "11-27T02:00"]),
        ("@weekly", ["11-29T00:00", "12-06T00:00"]),
        # A day of the month or a day of the week: either will do, unless one is a star. A star with a step is none.
        ("0 0 13 * fri", ["12-04T00:00", "12-11T00:00"]),
        ("0 0 */30 * wed", ["12-01T00:00", "12-02T00:00"]),
    ],
)
def test_the_grammar_is_that_of_a_cronjob(schedule: str, expected: list[str]):
    assert times(schedule, "Etc/UTC", "2026-11-27T00:00:00", 2) == expected


@pytest.mark.parametrize(
    ("schedule", "zone", "words"),
    [
        ("TZ=Europe/Vienna 0 0 * * *", "Etc/UTC", "spec.timeZone"),
        ("CRON_TZ=UTC 0 0 * * *", "Etc/UTC", "spec.timeZone"),
        ("* * * *", "Etc/UTC", "has 4 fields"),
        ("0 * * * * *", "Etc/UTC", "has 6 fields"),
        ("60 * * * *", "Etc/UTC", "'60' is no minute: 0 to 59"),
        ("* * 0 * *", "Etc/UTC", "'0' is no day-of-month"),
        ("* * * foo *", "Etc/UTC", "'foo' is no month"),
        ("* * * * 8", "Etc/UTC", "'8' is no day-of-week: 0 to 7 or a name"),
        ("* * L * *", "Etc/UTC", "is no day-of-month"),
        ("* * * * mon#2", "Etc/UTC", "is no day-of-week"),
        ("*/0 * * * *", "Etc/UTC", "is 0"),
        ("9-5 * * * *", "Etc/UTC", "ends before it begins"),
        ("@every 5m", "Etc/UTC", "is not known"),
        ("@reboot", "Etc/UTC", "is not known"),
        ("0 0 30 2 *", "Etc/UTC", "never comes"),
        ("0 0 * * *", "Local", "spec.timeZone: 'Local' is no time zone"),
        ("0 0 * * *", "../../etc/passwd", "is no time zone"),
        ("0 0 * * *", "Europe", "is no time zone"),
    ],
)
def test_what_has_no_meaning_is_refused_with_the_field(schedule: str, zone: str, words: str):
    with pytest.raises(ScheduleError, match="spec") as told:
        parse_schedule(schedule, zone)
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        # 29 March 2026: from 02:00 to 03:00, which is 01:00 in UTC.
        ("30 2 * * *", "2026-03-28T12:00:00", ["03-29T01:00", "03-30T00:30"]),
        ("*/30 * * * *", "2026-03-29T00:30:00", ["03-29T01:00", "03-29T01:30"]),
        # 25 October 2026: the hour from 02:00 comes twice, from 00:00 and from 01:00 in UTC.
        ("30 2 * * *", "2026-10-24T12:00:00", ["10-25T00:30", "10-26T01:30"]),
        ("30 2 * * *", "2026-10-25T01:10:00", ["10-26T01:30", "10-27T01:30"]),
        ("30 * * * *", "2026-10-25T00:00:00", ["10-25T00:30", "10-25T01:30"]),
    ],
)
def test_where_clocks_are_set_a_fixed_time_comes_once(schedule: str, after: str, expected: list[str]):
    assert times(schedule, VIENNA, after, 2) == expected


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        # 4 October 2026: from 02:00 to 02:30, which is 15:30 in UTC. 5 April: the half hour from 01:30 comes twice.
        ("*/20 3 * * *", "2026-10-03T12:00:00", ["10-03T16:00", "10-03T16:20", "10-03T16:40"]),
        ("15 2 * * *", "2026-10-02T18:00:00", ["10-03T15:30", "10-04T15:15", "10-05T15:15"]),
        ("*/20 3 * * *", "2026-04-04T12:00:00", ["04-04T16:30", "04-04T16:50", "04-04T17:10"]),
        ("45 * * * *", "2026-04-04T14:30:00", ["04-04T14:45", "04-04T15:15", "04-04T16:15"]),
        ("45 1 * * *", "2026-04-04T12:00:00", ["04-04T14:45", "04-05T15:15", "04-06T15:15"]),
    ],
)
def test_clocks_may_be_set_by_half_an_hour(schedule: str, after: str, expected: list[str]):
    assert times(schedule, "Australia/Lord_Howe", after, 3) == expected


@functools.cache
def shown(time: float, zone: str) -> datetime:
    """What a clock of the zone shows."""
    return datetime.fromtimestamp(time, ZoneInfo(zone)).replace(tzinfo=None)


def minute_by_minute(minutes: set[int], hours: set[int], zone: str, first: float, last: float) -> list[float]:
    """The times at which a clock shows one of these; `first` and `last` are whole minutes."""
    every = (first + 60.0 * n for n in range(1, int(last - first) // 60 + 1))
    return [time for time in every if shown(time, zone).minute in minutes and shown(time, zone).hour in hours]


# Of each zone days on whose eve clocks are set: by an hour, by half of one, by two, at midnight, back in summer.
_DAYS_OF_CHANGE = [
    (VIENNA, "2026-03-29"),
    (VIENNA, "2026-10-25"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("Antarctica/Troll", "2026-03-29"),
    ("Antarctica/Troll", "2026-10-25"),
    ("Africa/Cairo", "2026-04-24"),
    ("Africa/Cairo", "2026-10-30"),
    ("America/Havana", "2026-11-01"),
    ("America/St_Johns", "2026-03-08"),
    ("Europe/Dublin", "2026-10-25"),
]
_MINUTES, _HOURS = st.sets(st.integers(0, 59), min_size=1, max_size=4), st.sets(st.integers(0, 23), min_size=1)


def written(values: set[int]) -> str:
    """A field with these values."""
    return ",".join(map(str, sorted(values)))


@settings(max_examples=25)  # of each a day and a half, minute by minute
@given(place=st.sampled_from(_DAYS_OF_CHANGE), minutes=_MINUTES, hours=_HOURS, late=st.integers(-3000, 1500))
def test_a_star_goes_by_what_each_minute_shows(place: tuple[str, str], minutes: set[int], hours: set[int], late: int):
    zone, day = place
    first = at(f"{day}T00:00:00") + 60.0 * late
    last = first + 36 * 3600
    for schedule, of in (
        (f"{written(minutes)} * * * *", (minutes, set(range(24)))),
        (f"* {written(hours)} * * *", None),
    ):
        known, found = parse_schedule(schedule, zone), list[float]()
        while (following := known.after(found[-1] if found else first)) is not None and following <= last:
            found.append(following)
        assert found == minute_by_minute(*(of or (set(range(60)), hours)), zone, first, last)


@settings(max_examples=25)  # of each a day and a half, minute by minute
@given(place=st.sampled_from(_DAYS_OF_CHANGE), minutes=_MINUTES, hours=_HOURS)
def test_fixed_times_come_once_each_day_or_at_the_end_of_what_is_left_out(
    place: tuple[str, str], minutes: set[int], hours: set[int]
):
    zone, day = place
    first, last = at(f"{day}T00:00:00") - 40 * 3600, at(f"{day}T00:00:00") + 40 * 3600
    known, found = parse_schedule(f"{written(minutes)} {written(hours)} * * *", zone), list[float]()
    while (following := known.after(found[-1] if found else first)) is not None and following <= last:
        found.append(following)
    seen, once = set[datetime](), list[float]()
    for time in minute_by_minute(minutes, hours, zone, first - 24 * 3600, last):
        if shown(time, zone) not in seen and time > first:
            once.append(time)
        seen.add(shown(time, zone))
    moved = [time for time in found if time not in once]
    assert [time for time in found if time in once] == once
    assert all(shown(time, zone) - shown(time - 60.0, zone) > timedelta(minutes=1) for time in moved)
    assert len(moved) <= 1


_SCHEDULES = ("* * * * *", "*/7 * * * *", "30 2 * * *", "0,30 1-3 * * *", "15 * * * *", "0 0 * * mon", "10 2 29 3 *")


@given(
    schedule=st.sampled_from(_SCHEDULES),
    zone=st.sampled_from([VIENNA, "America/New_York", "Australia/Lord_Howe", "Etc/UTC", "Asia/Kathmandu"]),
    begin=st.integers(int(at("2026-01-01T00:00:00")), int(at("2027-12-31T00:00:00"))),
    span=st.integers(0, 3 * 24 * 3600),
)
def test_the_newest_is_the_last_of_those_that_follow_one_another(schedule: str, zone: str, begin: int, span: int):
    known, found, last = parse_schedule(schedule, zone), [], float(begin)
    while (following := known.after(last)) is not None and following <= begin + span and len(found) <= MOST_MISSED:
        assert following > last
        found.append(following)
        last = following
    if len(found) <= MOST_MISSED:
        assert known.newest(begin, begin + span) == (found[-1] if found else None)
        assert known.count(begin, begin + span + 1) == len(found)
    # Wherever one begins to look, the same times are found.
    if found:
        assert known.after(found[-1] - 1.0) == found[-1]


def test_after_a_year_away_the_newest_is_found_and_no_half_million_are_counted():
    known, now = parse_schedule("* * * * *", VIENNA), datetime(2026, 11, 27, tzinfo=UTC)
    since = (now - timedelta(days=365)).timestamp()
    assert known.newest(since, now.timestamp()) == now.timestamp()
    assert known.count(since, now.timestamp()) == MOST_MISSED + 1
