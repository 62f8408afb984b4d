"""As many random orders of events as some seconds have room for, and that a seed tells the same one each time.

Some of these seeds find it where the answer to a status write may put back what was before an edit. What was found, and
mended, is in tables beside it: `an_edit_whose_event_overtakes`, `a_refusal_that_comes_after_the_edit`,
`was_refused_is_told`, `of_a_cluster_that_is_gone`, `that_its_loop_found_it_gone`, `that_changes_hands`,
`an_answer_that_an_event_has_overtaken`, `a_sweep_in_which_a_request_failed`.

A failing seed is printed with its course of events, and with the command that plays it again. For many more:
`GPUDASK_ORDERS=2000 pytest tests/orders`, or `make orders ARGS="--seed 1000 --histories 2000"`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.program
HISTORIES = int(os.environ.get("GPUDASK_ORDERS", "16"))


def orders(*args: Any) -> subprocess.CompletedProcess[str]:
    """Play histories in a process of their own, in which sets of texts have the same order each time."""
    path = os.pathsep.join([str(ROOT / "operator"), str(ROOT)])
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": path}
    command = [sys.executable, "-m", "tests.orders", *map(str, args)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def played() -> subprocess.CompletedProcess[str]:
    """The histories of the seeds from 1, one after another, with the courses of all."""
    return orders("--seed", 1, "--histories", HISTORIES, "--course")


def test_whatever_the_order_of_events_a_new_operator_finds_nothing_to_do(played: subprocess.CompletedProcess[str]):
    assert played.returncode == 0, played.stdout[-30_000:] + played.stderr[-3_000:]
    assert f"histories={HISTORIES} " in played.stdout.splitlines()[-1]


def test_a_seed_is_one_history_event_for_event(played: subprocess.CompletedProcess[str]):
    """Also in a process that has played others before it: else none that fails there could be played again alone."""
    begin = f"seed {HISTORIES}:\n"
    among, alone = (
        done.stdout.partition(begin)[2].rpartition("orders: ")[0]
        for done in (played, orders("--seed", HISTORIES, "--histories", 1, "--course"))
    )
    assert len(alone.splitlines()) > 50
    assert among == alone
