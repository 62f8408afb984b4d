"""Figures in words: medians and ratios by hand, and a last line that a machine can read."""

from __future__ import annotations

import re

import pytest

from benchmarks.startup.report import FLOOR, GPUDASK, PEER, Results, last_line, table
from benchmarks.testbed.report import Sample

FLOOR_FIGURES = {"ready_2": 4.0, "ready_10": 10.0, "up_8": 8.0, "down_8_gone": 2.5, "termination_8": 2.0}
GPUDASK_FIGURES = {"ready_2": 5.0, "ready_10": 11.0, "up_8": 8.0, "down_8_gone": 3.25, "first_gpu_pod": 0.04}
PEER_FIGURES = {"ready_2": 6.0, "up_8": 12.0, "down_8_gone": 31.0}


def all_three() -> Results:
    return Results([(FLOOR, FLOOR_FIGURES), (GPUDASK, GPUDASK_FIGURES), (PEER, PEER_FIGURES)])


def test_the_last_line_has_every_figure_in_its_place() -> None:
    assert last_line(all_three()) == (
        "startup: ready_2=1.25x ready_10=1.10x up_8=1.00x down_8_extra=1.25s first_gpu_pod=0.04s"
        " peer_ready_2=1.50x peer_up_8=1.50x peer_down_8_extra=29.00s"
    )


def test_what_was_not_measured_is_said_to_be_so() -> None:
    line = last_line(Results([(FLOOR, FLOOR_FIGURES)]))
    assert set(re.findall(r"=(\S+)", line)) == {"n/a"}


def test_ratios_are_of_medians_so_that_one_slow_turn_does_not_count() -> None:
    turns = [(FLOOR, {"ready_2": seconds}) for seconds in (2.0, 2.0, 90.0)]
    turns += [(GPUDASK, {"ready_2": seconds}) for seconds in (3.0, 70.0, 3.0)]
    assert Results(turns).ratio(GPUDASK, "ready_2") == pytest.approx(1.5)


def test_a_sample_shows_its_median_and_its_spread() -> None:
    assert Sample((3.0, 1.0, 2.5, 9.0)).spread() == "2.75 s (1.00-9.00)"


def test_the_floors_own_retirement_is_extra_too() -> None:
    assert all_three().down_extra_seconds(FLOOR) == pytest.approx(0.5)


def test_the_table_says_what_the_peer_cannot_do_and_how_many_turns_count() -> None:
    rows = table(all_three(), [FLOOR, GPUDASK, PEER]).splitlines()
    assert rows[0] == "|  | floor | gpudask | dask-kubernetes |"
    assert rows[2] == (
        "| applied until 2 workers are registered | 4.00 s (4.00-4.00), n=1"
        " | 5.00 s (5.00-5.00), n=1, 1.25x | 6.00 s (6.00-6.00), n=1, 1.50x |"
    )
    assert any(row.startswith("| first GPU task until its pod exists | n/a | 0.04 s") for row in rows)
    assert all(row.endswith("| cannot |") for row in rows if "GPU" in row)
