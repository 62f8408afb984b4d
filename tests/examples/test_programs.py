"""The example programs, run as a user runs them, on a Dask cluster without Kubernetes."""

import json
import subprocess
import sys
from pathlib import Path

from distributed import SpecCluster

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ["--parts", "6", "--rows", "500", "--rounds", "2"]


def run(program: str, cluster: SpecCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, EXAMPLES / program, "--address", cluster.scheduler_address, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_mixed_pipeline_is_right_and_runs_gpu_steps_on_gpu_workers_only(mixed: SpecCluster, tmp_path: Path):
    report = tmp_path / "report.json"

    done = run("mixed_pipeline.py", mixed, *SMALL, "--report", str(report))

    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads(report.read_text())
    assert outcome["right"]
    assert outcome["misplaced"] == []
    assert set(outcome["placement"]["fourier_gram"]) <= {"demo-gpu-worker-0-ccccc-0", "demo-gpu-worker-0-ccccc-1"}
    assert {step: sum(workers.values()) for step, workers in outcome["placement"].items()} == {
        "load": 6,
        "clean": 6,
        "fourier_gram": 6,
        "summarise": 1,
    }


def test_the_mixed_pipeline_fails_when_a_gpu_step_ran_off_the_gpu_pool(gpu_on_cpu_pool: SpecCluster):
    done = run("mixed_pipeline.py", gpu_on_cpu_pool, *SMALL)

    assert done.returncode == 1
    assert "demo-cpu-worker-0-aaaaa, which is not of pool 'gpu'" in done.stdout


def test_a_second_run_on_the_same_scheduler_starts_a_record_of_its_own(mixed: SpecCluster):
    first, second = run("mixed_pipeline.py", mixed, *SMALL), run("mixed_pipeline.py", mixed, *SMALL)

    assert (first.returncode, second.returncode) == (0, 0), second.stdout + second.stderr
    assert "12 x" not in second.stdout


def test_memory_steering_joins_in_the_pool_that_offers_memory(mixed: SpecCluster):
    done = run("memory_steering.py", mixed)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "joined in pool himem, on demo-himem-worker-0-bbbbb" in done.stdout


def test_the_fallback_example_runs_where_there_is_a_gpu_and_is_right(mixed: SpecCluster):
    done = run("fallback.py", mixed, "--tasks", "6", "--seconds", "0")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == "ran on gpu workers: 6, on cpu workers: 0; right"
