"""Where the shapes of the charts lie."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudask.cli.report.geometry import Span, amount_ticks, area, shares, short, steps, time_ticks, top


def test_a_value_holds_until_the_next_and_the_last_one_to_the_end():
    line = steps([0, 50, 75], [0, 2, 1], Span(0, 100), highest=4)

    assert line == "M0 100H500L500 50H750L750 75H1000"
    assert area(line) == "M0 100H500L500 50H750L750 75H1000V100H0Z"


def test_what_lies_before_the_span_is_left_out_and_what_is_too_high_is_cut():
    assert steps([0, 50, 60], [1, 9, 0], Span(50, 150), highest=2) == "M0 0H100L100 100H1000"


def test_nothing_is_drawn_of_nothing():
    assert (steps([], [], Span(0, 1), 1), area("")) == ("", "")


@pytest.mark.parametrize(
    ("values", "end"), [([], 1), ([0], 1), ([1], 1), ([3], 5), ([8], 10), ([12, 3], 20), ([101], 200), ([220], 250)]
)
def test_an_axis_ends_at_a_round_number_above(values: list[float], end: float):
    assert top(values) == end


@pytest.mark.parametrize(
    ("highest", "labels"), [(1, ["1", "0"]), (2, ["2", "1", "0"]), (5, ["5", "0"]), (200, ["200", "100", "0"])]
)
def test_an_axis_has_whole_numbers_alone(highest: float, labels: list[str]):
    assert [tick.label for tick in amount_ticks(highest)] == labels


def of(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("begin", "end", "labels"),
    [
        ("2026-12-01T03:00:00", "2026-12-01T12:00:00", ["04:00", "06:00", "08:00", "10:00", "12:00"]),
        ("2026-12-01T03:00:10", "2026-12-01T03:00:40", ["03:00:10", "03:00:15", "03:00:20"]),
        ("2026-11-30T20:00:00", "2026-12-01T10:00:00", ["20:00", "22:00", "1 Dec", "02:00", "04:00"]),
        ("2026-11-28T20:00:00", "2026-12-01T10:00:00", ["29 Nov", "12:00", "30 Nov", "12:00", "1 Dec"]),
        ("2026-12-01T00:00:00", "2026-12-06T00:00:00", ["1 Dec", "2 Dec", "3 Dec", "4 Dec", "5 Dec", "6 Dec"]),
    ],
)
def test_times_are_round_and_where_a_day_begins_its_date_is_written(begin: str, end: str, labels: list[str]):
    told = [tick.label for tick in time_ticks(Span(of(begin), of(end)))]

    assert told[: len(labels)] == labels


@given(st.floats(min_value=-6e10, max_value=2e11), st.floats(min_value=0, max_value=2e11))
def test_any_two_times_have_an_axis_of_few_marks_in_their_order(begin: float, length: float):
    ticks = time_ticks(Span(begin, min(begin + length, 2.5e11)))

    assert len(ticks) <= 8
    assert all(0 <= tick.percent <= 100 for tick in ticks)
    assert [tick.percent for tick in ticks] == sorted(tick.percent for tick in ticks)


@given(st.lists(st.floats(min_value=0, max_value=1e12), max_size=12))
def test_the_parts_of_a_bar_fill_it(amounts: list[float]):
    places = shares(amounts)

    assert sum(width for _, width in places) == pytest.approx(100 if sum(amounts) else 0, abs=0.05)
    assert all(begin >= 0 and begin + width <= 100.01 for begin, width in places)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (950, "950"), (1200, "1.2k"), (94300, "94.3k"), (3.5e7, "35M"), (2.5, "2.5")]
)
def test_numbers_on_axes_are_short(value: float, text: str):
    assert short(value) == text
