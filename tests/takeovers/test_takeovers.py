"""The ledger through random takeovers: some dozens of seeds count right, and those that do not are named with why.

`make takeovers ARGS="--seed 0 --histories 2000"` tries many, and `ARGS="--show 16"` tells where one goes wrong.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest

from gpudask.clients.clock import Clock
from gpudask.planning.ledger import takeover
from gpudask.planning.ledger.takeover import Arrival
from tests.conftest import ROOT
from tests.takeovers.history import Outcome, play
from tests.takeovers.timeline import Line

pytestmark = pytest.mark.simulation

UNSEEN = (
    "pods came and went while the leader's watch told nothing, and then it listed anew: no list, stamp or status tells "
    "that they were there"
)
WRONG = {2348: UNSEEN}
WERE_WRONG = [108, 158, 322, 363, 529, 530, 579, 616, 721, 769, 977, 1162, 1301, 1612, 1725, 1734, 1933, 1954, 1974]
WERE_WRONG += [2323, 2355, 2476, 2484, 2978, 3638, 3831]
RIGHT = [seed for seed in (*range(48), *WERE_WRONG) if seed not in WRONG]


@pytest.mark.parametrize("seed", RIGHT)
def test_the_ledger_counts_what_the_pods_lived(seed: int):
    assert play(seed).wrong == ""


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.xfail(strict=True, reason=why)) for seed, why in WRONG.items()]
)
def test_it_will_in_histories_in_which_it_does_not_yet(seed: int):
    assert play(seed).wrong == ""


@pytest.mark.parametrize("seed", range(12))
def test_it_counts_right_through_outages_of_the_api_server(seed: int):
    assert play(seed, outages=True).wrong == ""


@pytest.mark.parametrize("seed", [seed for seed in range(24) if seed != 7])
def test_it_counts_right_while_somebody_sets_the_api_servers_clock(seed: int):
    """Not in seed 7: pods come and go while the clock is set, and the watch tells that once it is right again."""
    assert play(seed, clock_is_set=True).wrong == ""


def test_what_the_machine_says_of_a_counts_time_is_needed(monkeypatch: pytest.MonkeyPatch):
    """Seed 24: a count is written while the clock is set, and all operators end and begin once it is right again."""
    told = takeover._told
    monkeypatch.setattr(
        takeover, "_told", lambda status, *of: told(status.model_copy(update={"machine_counted_at": ""}), *of)
    )
    assert play(24, clock_is_set=True).wrong


def test_in_an_outage_an_operator_knows_that_no_pod_goes(monkeypatch: pytest.MonkeyPatch):
    """Seed 14: all operators end, and one begins while the API server answers nobody."""
    assert abs(last_error(play(14, outages=True))) < 3
    monkeypatch.setattr(Clock, "unanswered_at", lambda _clock: -math.inf)
    assert abs(last_error(play(14, outages=True))) > 10


def last_error(outcome: Outcome) -> float:
    """In GPU-seconds."""
    return [line.error for line in outcome.course if line.error is not None][-1]


def test_the_oracle_finds_a_count_that_takes_its_arrival_for_its_time(monkeypatch: pytest.MonkeyPatch):
    def arrival(told: float | None, came: Arrival | None) -> float | None:
        return told if came is None else came.at

    monkeypatch.setattr(takeover, "_counted_since", arrival)
    assert any(play(seed).wrong for seed in RIGHT)


def test_the_course_tells_where_the_error_jumps():
    course = (Line(1.0, "A wrote", 0.5), Line(2.0, "FAULT"), Line(3.0, "B wrote", 9.5), Line(4.0, "B wrote", 10.0))
    told = list(Outcome(seed=0, wrong="", gap=0.0, course=course).told())
    assert told == [
        "    1.0 [+0.5] A wrote",
        "    2.0 FAULT",
        "    3.0 [+9.5] B wrote",
        "-- the error jumps from +0.5 to +9.5 GPU-seconds",
        "    4.0 [+10.0] B wrote",
    ]


@pytest.mark.program
def test_a_seed_is_one_history_whatever_the_hash_seed():
    told = [_shown(2, hash_seed) for hash_seed in ("1", "2")]
    assert len(told[0].splitlines()) > 50
    assert told[0] == told[1]


def _shown(seed: int, hash_seed: str) -> str:
    """The course of a history, played by a process in which sets of texts have another order."""
    path = os.pathsep.join([str(ROOT / "operator"), str(ROOT)])
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
    command = [sys.executable, "-m", "tests.takeovers", "--show", str(seed)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
