"""The clients' figures in words, and the program that takes them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.clients import last_line, run_program, table
from benchmarks.startup.report import FLOOR, GPUDASK, PEER, Results

FLOOR_FIGURES = {"ready_2": 2.0, "first_result": 2.5}
GPUDASK_FIGURES = {"imports": 1.0, "call": 2.0, "ready_2": 2.25, "first_result": 2.5}
PEER_FIGURES = {"imports": 2.0, "call": 5.0, "ready_2": 5.0, "first_result": 5.5}
STAND_IN = """
from distributed import LocalCluster

def KubeCluster(*, workers):
    print("a library prints what it likes")
    nowhere = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    return LocalCluster(n_workers=workers, threads_per_worker=1, processes=False, scheduler_kwargs=nowhere)
"""


def all_three() -> Results:
    return Results([(FLOOR, FLOOR_FIGURES), (GPUDASK, GPUDASK_FIGURES), (PEER, PEER_FIGURES)])


def test_the_last_line_is_the_wait_for_two_workers_as_ratios_to_the_floor() -> None:
    assert last_line(all_three()) == "clients: kubecluster_2=1.12x peer_2=2.50x"


def test_who_took_no_part_is_said_to_be_unmeasured() -> None:
    assert last_line(Results([(FLOOR, FLOOR_FIGURES), (GPUDASK, GPUDASK_FIGURES)])).endswith(" peer_2=n/a")


def test_the_ratio_is_of_medians_so_that_one_slow_round_does_not_count() -> None:
    turns = [(FLOOR, {"ready_2": seconds}) for seconds in (2.0, 2.0, 60.0)]
    turns += [(GPUDASK, {"ready_2": seconds}) for seconds in (2.4, 70.0, 2.2)]
    assert last_line(Results(turns)).startswith("clients: kubecluster_2=1.20x ")


def test_the_table_shows_spread_turns_and_ratio_where_the_floor_has_the_figure() -> None:
    rows = table(all_three(), [FLOOR, GPUDASK, PEER]).splitlines()
    assert rows[0] == "|  | floor | gpudask | dask-kubernetes |"
    assert rows[2] == ("| the call, until it returns | n/a | 2.00 s (2.00-2.00), n=1 | 5.00 s (5.00-5.00), n=1 |")
    assert rows[3] == (
        "| the call, until 2 workers are ready | 2.00 s (2.00-2.00), n=1"
        " | 2.25 s (2.25-2.25), n=1, 1.12x | 5.00 s (5.00-5.00), n=1, 2.50x |"
    )


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module with a `KubeCluster` that needs no Kubernetes; logs go beside it."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("GPUDASK_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.dask
async def test_the_program_takes_its_figures_in_the_order_in_which_things_happen(stand_in: Path) -> None:
    figures = await run_program(Path(sys.executable), "stand_in", {"workers": 2}, stand_in)
    assert figures.keys() == {"imports", "call", "ready_2", "first_result"}
    assert 0 < figures["call"] < figures["ready_2"] < figures["first_result"]
    assert figures["imports"] > 0


@pytest.mark.dask
async def test_a_program_that_fails_says_where_its_words_are(stand_in: Path) -> None:
    with pytest.raises(OSError, match="the program ended early; what it said: ") as raised:
        await run_program(Path(sys.executable), "stand_in", {"nonsense": 1}, stand_in)
    (log,) = (stand_in / "logs").iterdir()
    assert str(raised.value).endswith(str(log))
    assert "nonsense" in log.read_text()
