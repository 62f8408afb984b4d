"""A selection of the attacks, many beside one victim at a time; `make hostile` tries all of them, few at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.__main__ import Plan, run
from tests.hostile.attack import Expected
from tests.hostile.attacks import ALL
from tests.hostile.impostor import ANSWERS, SILENT
from tests.hostile.trial import Limits

# Each run takes the same: every third of the light ones, in groups that mix all kinds. The hostile schedulers of a
# group share its namespace, and have to start: what keeps schedulers from that is a group of its own.
_LIGHT = [attack for attack in ALL if not attack.heavy]
_MIXED = [attack for attack in _LIGHT if not attack.starves_itself][::3]
_STARVING = [attack for attack in _LIGHT if attack.starves_itself][::3]
SHORT = (*_MIXED, *_STARVING)
GROUPS = [*((f"mixed {n}", _MIXED[n::4]) for n in range(4)), ("starved", _STARVING)]
# Other tests run beside these: times say less than when the machine is left alone.
BESIDE_OTHERS = Limits(floor_seconds=6.0, longest_seconds=30.0)
PLAN = Plan(GROUPS, rounds=2, calm_rounds=3, takes_apart=False, limits=BESIDE_OTHERS)


def test_attacks_have_names_of_their_own():
    assert len({attack.name for attack in ALL}) == len(ALL)


def test_each_attack_does_something():
    assert [attack.name for attack in ALL if not (attack.requests or attack.acts)] == []


def test_there_are_attacks_of_all_kinds_and_both_outcomes():
    assert len(SHORT) >= 50
    assert {attack.expected for attack in ALL} == set(Expected)
    assert {answers for attack in ALL for answers in attack.schedulers.values()} == {*ANSWERS, SILENT}


def test_a_hostile_scheduler_belongs_to_one_attack():
    clusters = [cluster for attack in ALL for cluster in attack.schedulers]
    assert len(set(clusters)) == len(clusters)


@pytest.mark.timeout(900)  # of which memory may take ten minutes to come down
@pytest.mark.api
@pytest.mark.quiet
async def test_nobody_else_feels_the_attacks(tmp_path: Path):
    told: list[str] = []
    result = await run(PLAN, tmp_path, told.append)
    assert str(result) == f"hostile: attacks={len(SHORT)} harmed=0", "\n".join(told)
