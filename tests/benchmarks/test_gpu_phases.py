"""What a task stream says of a program's phases, from a real scheduler."""

from __future__ import annotations

import json
import sys

import pytest
from distributed import LocalCluster

from benchmarks.gpu import stand_in
from benchmarks.gpu.programs import pipeline, session
from benchmarks.gpu.programs.session import NO_DASHBOARD
from benchmarks.gpu.report import summary


def step(action: str, start: float, stop: float) -> dict[str, object]:
    return {"action": action, "start": start, "stop": stop}


def test_a_kind_of_task_is_summed_up_over_its_workers() -> None:
    records = [
        {"key": ("refine-1"), "worker": "a", "startstops": [step("transfer", 11.0, 12.0), step("compute", 12.0, 14.0)]},
        {"key": ("refine-2"), "worker": "b", "startstops": [step("compute", 13.0, 16.0)]},
        {"key": ("refine-3"), "worker": "b", "startstops": [step("compute", 16.0, 17.0)]},
        {"key": ("load-1"), "worker": "c", "startstops": [step("compute", 10.5, 11.5)]},
        {"key": ("lost-1"), "worker": "c", "startstops": []},
    ]
    load, refine = pipeline.phases(records, 10.0)
    assert load == {"kind": "load", "began": 0.5, "ended": 1.5, "compute": 1.0, "transfer": 0, "tasks": [1]}
    assert refine == {"kind": "refine", "began": 1.0, "ended": 7.0, "compute": 6.0, "transfer": 1.0, "tasks": [2, 1]}


@pytest.mark.dask
def test_the_pipeline_says_when_each_of_its_phases_ran(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", stand_in)
    options = {"processes": False, "n_workers": 1, "threads_per_worker": 2}
    with LocalCluster(resources={"GPU": 1}, **options, **NO_DASHBOARD) as cluster:
        address = f"--scheduler={cluster.scheduler_address}"
        monkeypatch.setattr(sys, "argv", ["pipeline", address, "--gpus=1", "--fixed", "--cpus=0", "--shrink=10000"])
        pipeline.main()
    said = json.loads(capsys.readouterr().out.split("RESULT ")[1])
    ran = {row["kind"]: row for row in said["phases"]}
    assert {"load", "largest", "refine", "summarise"} <= ran.keys()
    assert sum(ran["refine"]["tasks"]) == sum(ran["load"]["tasks"])
    assert 0 <= ran["load"]["began"] <= ran["refine"]["began"] <= ran["refine"]["ended"] <= said["seconds"] + 0.1


@pytest.mark.dask
def test_the_scheduler_of_a_dry_run_listens_on_this_machine_alone() -> None:
    with session._without_devices(0, "tcp") as cluster:
        assert cluster.scheduler.http_server.address == "127.0.0.1"


def test_the_report_shows_them() -> None:
    row = {"kind": "refine", "began": 1.0, "ended": 7.0, "compute": 6.0, "transfer": 1.0, "tasks": [2, 1]}
    run = {"seconds": 8.0, "gpu_seconds": 8.0, "status_gpu_seconds": 8.0, "phases": [row]}
    record = {
        "measurement": "pipeline",
        "at": "now",
        "hardware": {"gpus": {"count": 1, "names": ["a"]}, "cores": 2, "memory_gib": 1, "kernel": "6"},
        "checkout": "abc",
        "checkout-edited": False,
        "figures": {"fixed": [run], "autoscaled": [run]},
    }
    assert "| autoscaled | refine | 1.0-7.0 s | 6.0 s | 1.0 s | 2 + 1 |" in summary([record])
