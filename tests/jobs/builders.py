"""A job and what is there of it, in one line each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpudask.api.job import Job, JobStatus, parse_job
from gpudask.api.status import iso
from gpudask.desired.runner import cluster_hash
from gpudask.jobs.observation import JobObservation, SeenCluster
from gpudask.jobs.runner_pods import RunnerPod
from tests.api.test_job import OWN, a_job

NOW = 1_800_000_000.0


def job(**spec: Any) -> Job:
    """A job with a cluster of its own, unless said otherwise."""
    return parse_job(a_job(**(OWN | spec)))


def own_cluster(of: Job, *, attempt: int = 1, ready: bool = True, **more: Any) -> SeenCluster:
    """The job's own cluster."""
    known = SeenCluster(of.name, "cluster-1", "1", is_own=True, attempt=attempt, scheduler_ready=ready)
    return replace(known, made_of=cluster_hash(of), **more)


def pod(number: int = 1, *, uid: str = "", **more: Any) -> RunnerPod:
    """A runner's pod that waits for its node."""
    known = RunnerPod(
        uid=uid or f"pod-{number}",
        name=f"sums-runner-{number}",
        namespace="lab",
        owner="lab/uid-1",
        version="1",
        container="runner",
        gated=False,
        node="",
        running=False,
        ended=False,
        finished=False,
        exit_code=None,
        reason="",
        message="",
        waits_for="",
        deleting=False,
    )
    return replace(known, **more)


def exited(code: int, number: int = 1, **more: Any) -> RunnerPod:
    """A runner's pod whose program has ended."""
    reason = "Error" if code else "Completed"
    return pod(number, node="n", ended=True, finished=True, exit_code=code, **({"reason": reason} | more))


def running(number: int = 1) -> RunnerPod:
    """A runner's pod whose program runs."""
    return pod(number, node="n", running=True)


def status(**fields: Any) -> JobStatus:
    """A job's status."""
    return JobStatus.model_validate(fields)


def open_attempt(number: int = 1, *, began: float = NOW - 100, failures: int = 0) -> JobStatus:
    """The status while an attempt is under way that was seen to run."""
    runner = {"pod": f"sums-runner-{number}", "uid": f"pod-{number}", "startedAt": iso(began)}
    return status(attempts=number, failures=failures, startTime=iso(began), runner=runner)


def not_begun() -> JobStatus:
    """The status while the first attempt is under way, and its program was not seen to run."""
    return status(attempts=1, startTime=iso(NOW - 100), runner={"pod": "sums-runner-1", "uid": "pod-1"})


def seen(of: Job, *pods: RunnerPod, at: float = NOW, **more: Any) -> JobObservation:
    """What is there of a job."""
    cluster = more.pop("cluster", None)
    named = cluster if cluster is not None and cluster.name == of.name else None
    used = cluster if cluster is not None and cluster.name == of.cluster_name else None
    known = JobObservation(of, status(), pods, named, used, at, wanted=cluster_hash(of))
    return replace(known, **more)
