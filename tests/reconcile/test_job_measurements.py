"""What the metrics say of a job's status, and of the step from one status to the next."""

from __future__ import annotations

from typing import Any

import pytest

from gpudask.api.job import JobPhase, JobReason, JobStatus
from gpudask.api.status import iso
from gpudask.jobs.plan import plan
from gpudask.metrics import families
from gpudask.metrics.jobs import JobState
from gpudask.reconcile.jobs.measurements import job_state, outcome, start
from tests.jobs.builders import NOW, exited, job, not_begun, open_attempt, own_cluster, pod, seen, status

AHEAD = 7.0  # seconds by which the API server's clock is ahead of the operator's


def state(**fields: Any) -> JobState:
    return job_state(status(**fields), now=NOW - AHEAD, server_ahead=AHEAD)


def test_a_first_attempt_waits_since_the_job_began_also_for_an_operator_that_has_just_started():
    found = state(phase="Pending", reason="ClusterPending", attempts=0, startTime=iso(NOW - 100))
    assert found == JobState(JobPhase.PENDING, JobReason.CLUSTER_PENDING, NOW - 100 - AHEAD)


def test_a_retry_waits_since_it_was_seen_to():
    found = state(phase="Retrying", reason="RunnerPending", attempts=2, failures=1, startTime=iso(NOW - 9000))
    assert found == JobState(JobPhase.RETRYING, JobReason.RUNNER_PENDING, NOW - AHEAD)


@pytest.mark.parametrize(
    "fields",
    [
        {"phase": "Retrying", "reason": "BackingOff"},
        {"phase": "Pending", "reason": "NotRecorded"},
        {"phase": "Suspended", "reason": "Suspended"},
        {"phase": "Running", "reason": "RunnerRunning"},
        {"phase": "Failed", "reason": "RetriesSpent"},
        {},
    ],
)
def test_what_is_meant_to_wait_or_does_not_is_no_wait(fields: Any):
    assert state(**fields).waits_for is None


def test_a_phase_that_nobody_knows_is_counted_among_those_that_wait_for_nothing_known():
    assert state(phase="Sleeping", reason="Tired") == JobState(JobPhase.PENDING)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (status(), "first"),
        (status(attempts=1, failures=1), "retry"),
        (status(attempts=1, runner={"reason": "Suspended"}), "resumed"),
    ],
)
def test_an_attempt_is_the_first_a_retry_or_one_after_a_suspension(before: JobStatus, expected: str):
    assert start(before) == expected
    assert expected in families.JOB_STARTS


REFUSED = pod(ended=True, finished=True, node="n", reason="OutOfcpu")


@pytest.mark.parametrize(
    ("before", "there", "spec", "expected"),
    [
        (open_attempt(), (exited(0),), {}, "succeeded"),
        (open_attempt(), (exited(3),), {}, "failed"),
        (open_attempt(), (exited(3),), {"retries": 1}, "failed"),
        (open_attempt(), (), {}, "lost"),
        (not_begun(), (REFUSED,), {}, "refused"),
        (open_attempt(began=NOW - 100), (pod(node="n", running=True),), {"activeDeadline": "10s"}, "deadline"),
        (open_attempt(), (pod(node="n", running=True),), {"suspend": True}, "suspended"),
    ],
)
def test_an_attempt_that_ended_has_an_outcome(before: JobStatus, there: Any, spec: Any, expected: str):
    of = job(**spec)
    after = plan(seen(of, *there, status=before, cluster=own_cluster(of))).status
    assert outcome(before, after) == expected
    assert expected in families.JOB_OUTCOMES
