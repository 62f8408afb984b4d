"""Some dozen jobs beside faults of their writes; `make chaos-jobs` runs a thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos_jobs.faults import KINDS, kind_of
from tests.chaos_jobs.jobs import PlannedJob, planned_jobs, unasked
from tests.chaos_jobs.run import Settings, run

JOBS = 60


def test_a_seed_is_always_the_same_jobs_of_all_kinds():
    assert planned_jobs(100, 3) == planned_jobs(100, 3)
    assert planned_jobs(100, 3) != planned_jobs(100, 4)
    jobs = planned_jobs(JOBS, 1)
    assert {job.ends for job in jobs} == {"Complete", "Failed", "gone"}
    assert {job.deed for job in jobs} == {"", "suspend", "delete"}
    assert any(job.refused for job in jobs)
    assert any(job.beside for job in jobs)


def test_what_ran_more_often_than_asked_is_found():
    jobs = [PlannedJob("j1", {}, runs=2), PlannedJob("j2", {})]
    assert list(unasked(jobs, {"j1": 2, "j2": 1})) == []
    (found,) = unasked(jobs, {"j1": 2, "j2": 2})
    assert "j2" in found


@pytest.mark.parametrize(
    ("method", "path", "body", "kind"),
    [
        ("POST", "/pods", b'{"name": "j1-runner-1"}', "runner create"),
        ("PATCH", "/pods/j1-runner-1", b'{"spec": {"schedulingGates": []}}', "gate removal"),
        ("PATCH", "/pods/j1-runner-1", b'{"spec": {"activeDeadlineSeconds": 1}}', "containers end"),
        ("DELETE", "/pods/j1-runner-1", b"", "runner delete"),
        ("DELETE", "/pods/j1-gpu-worker-0", b"", "worker delete"),
        ("PATCH", "/gpudaskjobs/j1/status", b"", "status patch"),
        ("DELETE", "/gpudaskjobs/j1", b"", "ttl deletion"),
        ("POST", "/gpudaskclusters", b"", "cluster create"),
        ("DELETE", "/gpudaskclusters/j1", b"", "cluster delete"),
        ("PATCH", "/gpudaskclusters/j1", b"", "cluster emptied"),
        ("POST", "/pods", b'{"name": "j1-gpu-worker-0"}', ""),
        ("PATCH", "/gpudaskclusters/j1/status", b"", ""),
    ],
)
def test_each_write_for_a_job_has_a_kind(method: str, path: str, body: bytes, kind: str):
    assert kind_of(method, path, body) == kind
    assert not kind or kind in KINDS


@pytest.mark.api
async def test_each_job_ends_as_asked_runs_as_often_as_asked_and_leaves_nothing(tmp_path: Path):
    told: list[str] = []
    result = await run(Settings(JOBS, seed=1, kills=4, seconds=200.0), tmp_path, told.append)
    assert result.findings == [], "\n".join(told)
    assert str(result).startswith(f"jobs: done={JOBS} stuck=0 twice=0 left=0 gpu_release_p99=")
