"""The GPU benchmark's figures by hand: ratios, what is extrapolated, the tables, and the last line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import figures, report
from benchmarks.gpu.runner import BenchmarkError
from benchmarks.gpu.report import last_line, summary

CLASSIC = {
    "rows": [
        {"shape": "classic 800 GB", "gpus": 1, "tasks": 64, "note": "12.5 GB a task", "seconds": [2.0, 2.2, 1.8]},
        {"shape": "classic 800 GB", "gpus": 4, "tasks": 64, "note": "12.5 GB a task", "seconds": [0.5, 0.5, 9.0]},
    ],
    "cpu_rows": [
        {
            "threads": 1,
            "chunk_bytes": 800_000_000,
            "measured_bytes": 3.2e9,
            "generator": "default_rng",
            "seconds": [1.6, 1.6, 5.0],
        },
        {
            "threads": 1,
            "chunk_bytes": 1_000_000,
            "measured_bytes": 3.2e9,
            "generator": "default_rng",
            "seconds": [0.8],
        },
        {
            "threads": 1,
            "chunk_bytes": 800_000_000,
            "measured_bytes": 3.2e9,
            "generator": "RandomState",
            "seconds": [3.2],
        },
        {
            "threads": 32,
            "chunk_bytes": 800_000_000,
            "measured_bytes": 80e9,
            "generator": "default_rng",
            "seconds": [2.0],
        },
    ],
    "errors": [],
}


def scaling(chain: tuple[float, float, float], transforms: tuple[float, float, float]) -> dict[str, Any]:
    """Seconds on 1, 2 and 4 GPUs."""
    rows = [
        {"shape": shape, "gpus": gpus, "tasks": 32, "note": "any", "seconds": [seconds]}
        for shape, all_seconds in (("chain", chain), ("transforms", transforms))
        for gpus, seconds in zip((1, 2, 4), all_seconds, strict=True)
    ]
    return {"rows": rows, "errors": ["transforms: ImportError: no library"]}


def step_run(variant: str, pod: float) -> dict[str, Any]:
    return {"variant": variant, "steps": {"decision": 0.1, "pod": pod, "process": 2.0}}


def record(measurement: str, of: dict[str, Any]) -> dict[str, Any]:
    return {
        "measurement": measurement,
        "at": "2026-11-22T04:00:00+00:00",
        "hardware": {
            "gpus": {"count": 4, "names": ["NVIDIA H200, 143771 MiB, 580.1"] * 4},
            "topology": "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n\nLegend:\n  SYS = a way across sockets\n",
            "cores": 64,
            "memory_gib": 500.0,
            "kernel": "6.18",
        },
        "checkout": "abc",
        "checkout-edited": False,
        "figures": of,
    }


def transfer_row(where: str, how: str, seconds: float) -> dict[str, Any]:
    empty = {"empty_seconds": [0.0125]} if how.startswith("dask") else {}
    return {"where": where, "how": how, "nbytes": 1_000_000_000, "seconds": [seconds]} | empty


def whole() -> list[dict[str, Any]]:
    """Every measurement once."""
    shapes = {"operator": 2.08, "local": 2.0}
    both = {who: [{"shape": "chain", "seconds": [seconds]}] for who, seconds in shapes.items()}
    pipeline = {
        "fixed": [{"seconds": 30.0, "gpu_seconds": 120.0, "status_gpu_seconds": 130.0}],
        "autoscaled": [{"seconds": 33.0, "gpu_seconds": 60.0, "status_gpu_seconds": 61.0}],
    }
    uneven = {
        "seconds": 25.0,
        "task_seconds": 45.0,
        "longest_task": 4.5,
        "pod_seconds": 60.5,
        "held": 60.0,
        "used": 45.0,
        "causes": {"working": 45.0, "waiting_idle_timeout": 10.0, "starting": 5.0},
    }
    retired = {
        "bytes": 2_000_000_000,
        "deleted_seconds": 1.5,
        "gone_seconds": 2.5,
        "on_gpu_workers": True,
        "intact": True,
    }
    rows = [
        transfer_row("two pods", "dask, tcp", 0.5),
        transfer_row("one pod", "dask, tcp", 0.4),
        transfer_row("one pod", "CuPy peer copy, GPUs reach each other", 0.005),
    ]
    return [
        record("classic", CLASSIC),
        record("scaling", scaling((8.0, 4.0, 2.0), (9.0, 5.0, 3.0))),
        record("overhead", {**both, "errors": []}),
        record("first", {"runs": [step_run("plain", 1.0), step_run("plain", 2.0), step_run("cupy", 0.5)]}),
        record("first_result", {"runs": [step_run("one process", 0.2), step_run("below a nanny", 1.0)]}),
        record("pipeline", pipeline),
        record("uneven", {"runs": [uneven]}),
        record("retirement", {"runs": [retired]}),
        record("transfer", {"rows": rows, "errors": []}),
    ]


def test_the_last_line_has_every_figure_in_its_place() -> None:
    assert last_line(whole()) == (
        "gpu: overhead=1.040x scale_2=1.80x scale_4=3.00x classic_4gpu=800x_one_thread first_result=2.30s"
        " first_result_nanny=3.10s"
        " pipeline_gpu_seconds=0.50x pipeline_makespan=1.10x uneven_used=0.75x nvlink=200.0GB/s tcp=2.00GB/s"
    )


def test_what_was_not_measured_is_said_to_be_so() -> None:
    assert last_line([]) == (
        "gpu: overhead=n/a scale_2=n/a scale_4=n/a classic_4gpu=n/a first_result=n/a first_result_nanny=n/a"
        " pipeline_gpu_seconds=n/a pipeline_makespan=n/a uneven_used=n/a nvlink=n/a tcp=n/a"
    )


def test_a_copy_by_way_of_the_host_is_no_link_between_gpus() -> None:
    rows = [transfer_row("one pod", "CuPy peer copy, by way of the host", 0.01)]
    assert last_line([record("transfer", {"rows": rows})]).endswith("nvlink=n/a tcp=n/a")


def test_what_next_to_nothing_takes_stands_beside_the_rate() -> None:
    text = summary(whole())
    assert "| one pod | dask, tcp | 1.0 GB | 2.50 GB/s (2.50-2.50), n=1 | 0.0125 s (0.0125-0.0125), n=1 |" in text
    assert "| 200.00 GB/s (200.00-200.00), n=1 |  |" in text


def test_one_slow_round_does_not_count() -> None:
    assert figures.speedups([CLASSIC], "classic 800 GB") == pytest.approx({1: 1.0, 4: 4.0})


def test_a_call_is_compared_with_itself_because_the_next_one_has_other_tasks() -> None:
    calls = [scaling((8.0, 4.0, 2.0), (1.0, 1.0, 1.0)), scaling((16.0, 10.0, 5.0), (1.0, 1.0, 1.0))]
    assert figures.speedups(calls, "chain")[2] == pytest.approx((2.0 + 1.6) / 2)


def test_one_thread_is_extrapolated_from_the_part_that_was_measured() -> None:
    found = figures.cpu_seconds(CLASSIC["cpu_rows"], "classic 80 GB", one_thread=True)
    assert found[1, 800_000_000, "default_rng"].median == pytest.approx(1.6 * 80 / 3.2)
    assert found[1, 1_000_000, "default_rng"].median == pytest.approx(0.8 * 80 / 3.2)


def test_each_generator_has_a_ratio_of_its_own() -> None:
    assert figures.times_one_thread([CLASSIC], "classic 800 GB", 4) == pytest.approx(800.0)
    assert figures.times_one_thread([CLASSIC], "classic 800 GB", 4, "RandomState") == pytest.approx(1600.0)


def test_shapes_that_one_side_lacks_are_left_out_of_the_overhead() -> None:
    both = {
        "operator": [{"shape": "chain", "seconds": [2.0]}, {"shape": "transforms", "seconds": [50.0]}],
        "local": [{"shape": "chain", "seconds": [2.0]}],
    }
    assert figures.overheads([both]) == {"chain": 1.0, "all": 1.0}


def test_the_summary_names_machine_versions_links_and_what_failed() -> None:
    text = summary(whole())
    assert "GPUs: 4; NVIDIA H200, 143771 MiB, 580.1\n" in text
    assert "as nvidia-smi topo -m has them: NV18\n" in text
    assert "- scaling: transforms: ImportError: no library" in text
    assert text.endswith(last_line(whole()) + "\n")


def test_the_table_shows_spread_and_how_often() -> None:
    text = summary(whole())
    assert (
        "| classic 800 GB | 4 | 0.500 s (0.500-9.000), n=3 | 4.00x | 800x | 1600x | 64 tasks, 12.5 GB a task |" in text
    )
    assert "| pod | 1.50 s (1.00-2.00), n=2 | 0.50 s (0.50-0.50), n=1 |" in text
    assert "| times that all results were intact | 1 of 1 |" in text


def test_figures_of_other_gpus_do_not_go_into_one_file(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    report.add(path, "classic", {"rows": []}, gpus=2)
    report.add(path, "scaling", {"rows": []}, gpus=2)
    assert [row["measurement"] for row in report.read(path)] == ["classic", "scaling"]
    with pytest.raises(BenchmarkError, match="figures of other GPUs"):
        report.add(path, "classic", {"rows": []}, gpus=4)
