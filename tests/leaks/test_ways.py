"""The schedule: each way in turn, by a seed."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.leaks.ways import WAYS, Ending, Fault, Way, schedule


def test_a_hundred_programs_end_in_every_way_as_often_as_any():
    counts = Counter(planned.way.name for planned in schedule(1, 100))
    assert counts.keys() == {way.name for way in WAYS}
    assert counts.total() == 100
    assert max(counts.values()) - min(counts.values()) <= 1


def test_each_round_has_each_way_once_in_an_order_of_its_own():
    planned = [each.way.name for each in schedule(1, 2 * len(WAYS))]
    first, second = planned[: len(WAYS)], planned[len(WAYS) :]
    assert sorted(first) == sorted(second) == sorted(way.name for way in WAYS)
    assert first != second


def test_a_seed_has_one_schedule_and_another_seed_another():
    assert schedule(3, 40) == schedule(3, 40)
    assert schedule(3, 40) != schedule(4, 40)


def test_some_have_a_gpu_and_some_a_client_and_no_two_a_name():
    planned = schedule(1, 100)
    assert 0 < sum(each.has_gpu for each in planned) < 50
    assert 25 < sum(each.has_client for each in planned) < 75
    assert len({each.cluster for each in planned}) == 100


def test_only_the_ways_that_are_asked_for():
    planned = schedule(1, 5, only=frozenset({"SIGKILL", "network cut"}))
    assert Counter(each.way.name for each in planned).keys() == {"SIGKILL", "network cut"}
    assert len(planned) == 5


def test_every_ending_and_every_fault_is_some_ways():
    assert {way.ending for way in WAYS} == set(Ending)
    assert {way.fault for way in WAYS} == set(Fault)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_there_is_a_pause_before_each_signal(way: Way):
    (planned,) = schedule(1, 1, only=frozenset({way.name}))
    assert len(planned.pauses) >= max(1, len(way.signals))
