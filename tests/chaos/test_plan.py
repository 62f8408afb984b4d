"""The schedule is its seed's, and keeps its own rules."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import combinations, pairwise

import pytest

from tests.chaos.faults import FAULTS
from tests.chaos.plan import AT_ONCE, KINDS, LOSES_STATE, Planned, plan

HOUR = 3600.0
SEEDS = range(1, 6)


@cache
def hour(seed: int) -> tuple[Planned, ...]:
    """A seed's schedule of an hour, made once."""
    return plan(seed, HOUR)


def test_a_seed_has_one_schedule_and_another_seed_another():
    assert plan(1, HOUR) == hour(1)
    assert hour(1) != hour(2)


def test_each_kind_can_be_inflicted_and_nothing_else_can():
    assert {kind.name for kind in KINDS} == FAULTS.keys()
    assert {kind.name for kind in KINDS} >= LOSES_STATE


@pytest.mark.parametrize("seed", SEEDS)
def test_an_hour_has_three_hundred_faults_of_all_kinds(seed: int):
    counted = Counter(each.kind.name for each in hour(seed))
    assert counted.total() >= 330, "some find no victim: three hundred have to be left"
    assert set(counted) == FAULTS.keys()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_kind_comes_once_before_long(seed: int):
    assert len({each.kind.name for each in plan(seed, 600.0)}) > 0.8 * len(KINDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_of_a_group_do_not_overlap(seed: int):
    overlapping = [(a, b) for a, b in combinations(hour(seed), 2) if a.kind.group == b.kind.group and _meet(a, b)]
    assert overlapping == []


@pytest.mark.parametrize("seed", SEEDS)
def test_few_faults_act_at_a_time(seed: int):
    planned = hour(seed)
    assert max(sum(each.at <= other.at < each.until for each in planned) for other in planned) <= AT_ONCE


@pytest.mark.parametrize("seed", SEEDS)
def test_all_faults_end_within_the_run(seed: int):
    assert max(each.until for each in plan(seed, 300.0)) <= 300.0


def test_lost_nodes_have_time_between_them():
    lost = [each.at for each in hour(3) if each.kind.name == "node lost"]
    assert min(b - a for a, b in pairwise(lost)) >= 150


def test_a_run_can_be_of_some_kinds_alone():
    assert {each.kind.name for each in plan(1, 300.0, only={"worker killed", "quota"})} == {"worker killed", "quota"}


def _meet(a: Planned, b: Planned) -> bool:
    return a.at < b.until and b.at < a.until
