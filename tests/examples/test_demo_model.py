"""The demonstration's view of a recorded sequence of facts."""

import asyncio
import io
from pathlib import Path

import pytest
from rich.console import Console

from local.demo.lines import lines_of
from local.demo.model import (
    ClusterFact,
    EventFact,
    LineFact,
    PodFact,
    View,
    apply,
    cluster_fact,
    event_fact,
    pod_fact,
)
from local.demo.plot import draw
from local.demo.recording import Recording, TooLateError
from local.demo.summary import over_time, summarize
from local.demo.view import table


def status(
    at: float, *, desired: int, waiting: int = 0, running: int = 0, held: float = 0, used: float = 0
) -> ClusterFact:
    pool = {
        "name": "gpu",
        "desired": desired,
        "gpusHeld": desired,
        "demand": {"waiting": waiting, "running": running},
        "gpuSecondsHeld": held,
        "gpuSecondsUsed": used,
        "reason": "demand",
    }
    return cluster_fact(at, {"status": {"phase": "Running", "scheduler": {"ready": True}, "pools": [pool]}})


def pod(at: float, number: int = 0, **state: bool) -> PodFact:
    return PodFact(at, f"demo-gpu-worker-{number}", "gpu", **state)


UP_AND_DOWN = [
    status(0, desired=0),
    status(1, desired=1, waiting=3),
    pod(1.1),
    pod(7, ready=True),
    status(7.5, desired=2, waiting=1, running=1, held=0.5),
    pod(7.6, 1),
    pod(13, 1, ready=True),
    status(30, desired=0, held=40, used=30),
    pod(30.1, ready=True, leaving=True),
    pod(30.2, 1, ready=True, leaving=True),
    pod(31, gone=True),
    pod(32, 1, gone=True),
]
REPORT = {
    "right": True,
    "placement": {
        "load": {"demo-cpu-worker-0-aaaaa": 4},
        "fourier_gram": {"demo-gpu-worker-0-bbbbb-0": 3, "demo-gpu-worker-1-ccccc-0": 1},
    },
    "gpu_wait_seconds": 6.04,
}


def fold(*facts: ClusterFact | PodFact | EventFact | LineFact) -> View:
    view = View()
    for fact in facts:
        view = apply(view, fact)
    return view


@pytest.mark.parametrize(
    ("facts", "counts", "empty"),
    [
        (0, (0, 0, 0, 0), True),
        (1, (0, 0, 0, 0), True),
        (2, (1, 0, 0, 0), False),
        (3, (1, 0, 1, 0), False),
        (4, (1, 1, 0, 0), False),
        (6, (2, 1, 1, 0), False),
        (7, (2, 2, 0, 0), False),
        (8, (0, 2, 0, 0), False),
        (10, (0, 0, 0, 2), False),
        (11, (0, 0, 0, 1), False),
        (12, (0, 0, 0, 0), True),
    ],
)
def test_a_pool_goes_up_and_down(facts: int, counts: tuple[int, int, int, int], empty: bool):
    """Counts: desired, ready, pending, leaving."""
    pool = fold(*UP_AND_DOWN[:facts]).pool("gpu")

    assert (pool.desired, pool.ready, pool.pending, pool.leaving) == counts
    assert pool.empty == empty


def test_facts_that_change_nothing_make_no_sample():
    view = fold(status(0, desired=0), status(1, desired=0), pod(2), pod(3))

    assert [sample.at for sample in view.samples] == [0, 2]


def test_a_pool_is_known_by_its_pods_before_the_status_names_it():
    assert fold(pod(1)).pool("gpu").pending == 1


def test_the_size_over_time_tells_each_step_once():
    assert over_time(fold(*UP_AND_DOWN), "gpu") == "0 -> 1 (7 s) -> 2 (13 s) -> 1 (30 s) -> 0 (30 s)"


def test_the_summary_gives_each_figure_with_its_source():
    view = fold(*UP_AND_DOWN)
    lines = {line.what: (line.value, line.source) for line in summarize(view, fold(UP_AND_DOWN[0]), REPORT, ["gpu"])}

    assert lines["fourier_gram ran on"] == ("pool gpu: 4 tasks on 2 workers", "the scheduler's transitions")
    assert lines["load ran on"][0] == "pool cpu: 4 tasks on 1 worker"
    assert lines["first GPU task -> first GPU worker"] == ("6.0 s", "the scheduler's clock")
    assert lines["GPU-seconds held"] == ("40", "status.pools[].gpuSecondsHeld")
    assert lines["GPU-seconds used"][0] == "30 (75% of what was held)"
    assert lines["result"][0] == "right"


def test_gpu_seconds_of_earlier_runs_are_not_counted_again():
    before = fold(status(0, desired=0, held=100, used=80))
    after = fold(status(0, desired=0, held=140, used=110))
    lines = {line.what: line.value for line in summarize(after, before, REPORT, ["gpu"])}

    assert lines["GPU-seconds held"] == "40"


def test_without_a_terminal_a_change_of_a_pool_is_a_line():
    before = fold(UP_AND_DOWN[0])
    fact = UP_AND_DOWN[1]

    assert lines_of(before, apply(before, fact), fact, with_pools=True) == [
        "   1.0 s  pool gpu: 0/1 ready, 1 GPUs held, tasks 3 waiting, 0 assigned"
    ]
    assert lines_of(before, apply(before, fact), fact, with_pools=False) == []


def test_events_and_the_pipelines_lines_are_always_shown():
    event = EventFact(2, "Normal", "ScaledUp", "pool gpu 0 -> 1")
    line = LineFact(3, "hello")

    assert lines_of(View(), View(), event, with_pools=False) == ["   2.0 s  normal ScaledUp: pool gpu 0 -> 1"]
    assert lines_of(View(), View(), line, with_pools=False) == ["   3.0 s  | hello"]


def test_a_repeated_event_says_how_often():
    body = {"type": "Warning", "reason": "QuotaExceeded", "message": "no room", "series": {"count": 3}}

    assert event_fact(0, body).message == "no room (3 times)"


def test_the_schedulers_pod_is_of_no_pool():
    assert pod_fact(0, "ADDED", {"metadata": {"name": "demo-scheduler-00000", "labels": {}}}) is None


def test_a_pod_is_read_from_its_conditions():
    body = {
        "metadata": {"name": "p", "labels": {"gpudask.dev/pool": "gpu"}, "deletionTimestamp": "now"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }

    assert pod_fact(1, "MODIFIED", body) == PodFact(1, "p", "gpu", ready=True, leaving=True)


def test_the_table_shows_every_pool():
    console = Console(file=io.StringIO(), width=120)
    console.print(table(fold(*UP_AND_DOWN[:7]), "demo", 13))

    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "gpu" in text
    assert "demo  Running  13 s" in text


@pytest.mark.parametrize("facts", [1, len(UP_AND_DOWN)])
def test_the_plot_is_a_png(tmp_path: Path, facts: int):
    draw(fold(*UP_AND_DOWN[:facts]), 40, ["gpu"], tmp_path / "new" / "demo.png")

    assert (tmp_path / "new" / "demo.png").read_bytes().startswith(b"\x89PNG")


async def test_waiting_ends_with_the_fact_that_fulfils_it():
    recording = Recording()
    waiting = asyncio.create_task(recording.until(lambda view: view.pool("gpu").ready == 1, 10, "never"))
    for fact in UP_AND_DOWN[:4]:
        await asyncio.sleep(0)
        recording.add(fact)

    await waiting


async def test_waiting_in_vain_tells_what_was_seen():
    recording = Recording()
    recording.add(UP_AND_DOWN[1])

    with pytest.raises(TooLateError, match=r"did not empty within 0.01 s; seen instead: phase Running; gpu: 0 ready"):
        await recording.until(lambda view: view.pool("gpu").empty, 0.01, "the pool did not empty")


async def test_without_any_status_the_operator_is_asked_for():
    with pytest.raises(TooLateError, match="is the operator running"):
        await Recording().until(lambda _: False, 0.01, "no scheduler")
