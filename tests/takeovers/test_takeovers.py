"""The ledger through random takeovers: some dozens of seeds count right, and those that do not are named with why.

`make takeovers ARGS="--seed 0 --histories 2000"` tries many, and `ARGS="--show 16"` tells where one goes wrong.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gpudask.planning.ledger import takeover
from gpudask.planning.ledger.takeover import Arrival
from tests.conftest import ROOT
from tests.takeovers.history import Outcome, play
from tests.takeovers.timeline import Line

UNHEARD = "a leader goes before it hears what its watch has missed, and nobody puts its count right"
UNSTAMPED = "a watch that was cut tells of a deletion, which has no stamp: it counts as of when it is told"
OWED = "the history ends before a surplus is left out of what is counted: hardly any GPU is held"
# OWED was put right by hand, by a calm of 300 s: nothing that is wrong was left. The other reasons are read in courses.
WRONG = {
    108: UNHEARD,
    158: UNSTAMPED,
    363: UNHEARD,
    616: UNHEARD,
    977: UNHEARD,
    1734: OWED,
    1954: UNHEARD,
}
WERE_WRONG = [529, 530, 579, 721, 769, 1162, 1612, 1725, 1933, 1974, 2355, 2476]
RIGHT = [seed for seed in (*range(48), *WERE_WRONG) if seed not in WRONG]


@pytest.mark.parametrize("seed", RIGHT)
def test_the_ledger_counts_what_the_pods_lived(seed: int):
    assert play(seed).wrong == ""


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.xfail(strict=True, reason=why)) for seed, why in WRONG.items()]
)
def test_it_will_in_histories_in_which_it_does_not_yet(seed: int):
    assert play(seed).wrong == ""


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
