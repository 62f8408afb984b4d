"""What is exported of jobs and cron jobs: counted as they change, and bounded whatever a tenant makes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from gpudask.api.cron_job import CronJobConditionType, CronJobStatus
from gpudask.api.job import JobPhase, JobReason
from gpudask.api.status import epoch
from gpudask.metrics import families
from gpudask.metrics.jobs import MAX_CRON_JOB_SERIES, MAX_CRON_JOBS, MAX_SERIES, JobMetrics, JobState
from gpudask.metrics.operator import Metrics
from tests.metrics.reading import Series, read, value

AT = 1_800_000_000.0
RUNS = JobState(JobPhase.RUNNING)


def leading(*, now: float = AT) -> Metrics:
    metrics = Metrics(clock=lambda: now)
    metrics.leads = lambda: True
    return metrics


def waits(reason: JobReason = JobReason.RUNNER_PENDING, since: float = AT) -> JobState:
    """A job whose program should run."""
    return JobState(JobPhase.PENDING, reason, since)


def phases(of: Series | Metrics, namespace: str = "lab") -> dict[str, float]:
    """The phases that some job has."""
    found = {phase: value(of, "gpudask_jobs", namespace=namespace, phase=phase) for phase in families.JOB_PHASES}
    return {phase: number for phase, number in found.items() if number}


def test_jobs_are_counted_by_namespace_and_phase_as_they_change():
    metrics = leading()
    metrics.jobs.set_job("lab/a", waits())
    metrics.jobs.set_job("lab/b", RUNS)
    metrics.jobs.set_job("shop/c", RUNS)
    assert phases(metrics) == {"Pending": 1, "Running": 1}
    metrics.jobs.set_job("lab/a", RUNS)
    assert (phases(metrics), phases(metrics, "shop")) == ({"Running": 2}, {"Running": 1})
    assert value(metrics, "gpudask_jobs", namespace="lab", phase="Failed") == 0


def test_a_namespace_is_gone_with_its_last_job():
    metrics = leading()
    metrics.jobs.set_job("lab/a", waits())
    metrics.jobs.forget_job("lab/a")
    metrics.jobs.forget_job("lab/a")
    assert not [name for name, has in read(metrics.exposition()) if ("namespace", "lab") in has]


def test_the_longest_wait_goes_on_while_the_reason_changes_and_ends_when_the_program_runs():
    metrics = leading()
    metrics.jobs.set_job("lab/a", waits(JobReason.CLUSTER_PENDING, since=AT - 500))
    metrics.jobs.set_job("lab/a", waits(JobReason.RUNNER_PENDING, since=AT - 5))
    metrics.jobs.set_job("lab/b", waits(since=AT - 100))
    assert value(metrics, "gpudask_jobs_longest_wait_seconds", namespace="lab") == 500
    assert value(metrics, "gpudask_jobs_waiting", namespace="lab", reason="RunnerPending") == 2
    assert value(metrics, "gpudask_jobs_waiting", namespace="lab", reason="ClusterPending") is None
    metrics.jobs.set_job("lab/a", RUNS)
    assert value(metrics, "gpudask_jobs_longest_wait_seconds", namespace="lab") == 100
    metrics.jobs.set_job("lab/b", RUNS)
    assert value(metrics, "gpudask_jobs_longest_wait_seconds", namespace="lab") == 0


def test_a_retry_waits_since_its_own_beginning():
    metrics = leading()
    metrics.jobs.set_job("lab/a", waits(since=AT - 500))
    metrics.jobs.set_job("lab/a", JobState(JobPhase.RETRYING))
    metrics.jobs.set_job("lab/a", waits(since=AT - 5))
    assert value(metrics, "gpudask_jobs_longest_wait_seconds", namespace="lab") == 5


def a_status(**fields: Any) -> CronJobStatus:
    return CronJobStatus.model_validate(fields)


def a_condition(kind: str, status: str, reason: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason}


def test_a_cron_job_has_its_times_its_jobs_and_its_conditions():
    status = a_status(
        active=[{"name": "nightly-1", "uid": "u"}],
        missed=3,
        lastScheduleTime="2026-11-27T12:00:00Z",
        nextScheduleTime="2026-11-28T12:00:00Z",
        conditions=[a_condition("Accepted", "True", "Accepted"), a_condition("Starting", "False", "MissedSchedule")],
    )
    metrics = leading()
    metrics.jobs.set_cron_job("lab/u", "nightly", status, suspended=True)
    found, of = read(metrics.exposition()), {"namespace": "lab", "cronjob": "nightly"}
    assert value(found, "gpudask_cronjob_active_jobs", **of) == 1
    assert value(found, "gpudask_cronjob_missed_total", **of) == 3
    assert value(found, "gpudask_cronjob_suspended", **of) == 1
    assert value(found, "gpudask_cronjob_last_schedule_time_seconds", **of) == epoch("2026-11-27T12:00:00Z")
    assert value(found, "gpudask_cronjob_next_schedule_time_seconds", **of) == epoch("2026-11-28T12:00:00Z")
    assert value(found, "gpudask_cronjob_last_successful_time_seconds", **of) is None
    assert value(found, "gpudask_cronjob_condition", condition="Starting", reason="MissedSchedule", **of) == 0
    assert value(found, "gpudask_cronjobs", namespace="lab") == 1
    metrics.jobs.forget_cron_job("lab/u")
    assert value(metrics, "gpudask_cronjob_missed_total", **of) is None


def test_what_a_status_says_becomes_no_series_of_its_own():
    """Who may write a status may write anything there."""
    conditions = [a_condition(f"Mine{n}", "True", "x") for n in range(14)] + [a_condition("Accepted", "False", "y")]
    metrics = leading()
    metrics.jobs.set_cron_job(
        "lab/u", "nightly", a_status(conditions=conditions, nextScheduleTime="soon"), suspended=False
    )
    found = read(metrics.exposition())
    told = [dict(has) for name, has in found if name == "gpudask_cronjob_condition"]
    assert [(each["condition"], each["reason"]) for each in told] == [("Accepted", "Other")]
    assert value(found, "gpudask_cronjob_next_schedule_time_seconds", cronjob="nightly") is None


def test_the_series_of_a_namespace_are_bounded_whatever_is_made_there():
    metrics = leading()
    of = [JobState(phase, reason, AT) for phase in JobPhase for reason in (None, *JobReason)]
    for number in range(5000):
        metrics.jobs.set_job(f"lab/{number}", of[number % len(of)])
    conditions = [a_condition(kind, "True", "OnTime") for kind in CronJobConditionType]
    times = dict.fromkeys(("lastScheduleTime", "nextScheduleTime", "lastSuccessfulTime"), "2026-11-27T12:00:00Z")
    for number in range(3 * MAX_CRON_JOBS):
        status = a_status(conditions=conditions, **times)
        metrics.jobs.set_cron_job(f"lab/cron-{number}", f"nightly-{number}", status, suspended=False)
    found = read(metrics.exposition())
    assert value(found, "gpudask_cronjobs", namespace="lab") == 3 * MAX_CRON_JOBS
    of_jobs = Counter("cronjob" in dict(has) for _, has in found if ("namespace", "lab") in has)
    assert of_jobs == {False: MAX_SERIES + 1, True: MAX_CRON_JOBS * MAX_CRON_JOB_SERIES}


def test_a_standby_says_nothing_of_jobs():
    metrics = Metrics()
    metrics.jobs.set_job("lab/a", RUNS)
    metrics.jobs.set_cron_job("lab/u", "nightly", a_status(), suspended=False)
    assert not [has for _, has in read(metrics.exposition()) if ("namespace", "lab") in has]


def test_gpus_are_given_back_when_the_last_pod_that_held_some_is_gone():
    metrics = leading()
    metrics.jobs.runner_ended(["a", "b"], AT)
    metrics.jobs.runner_ended(["b"], AT + 1)  # the status could not be written, and the pass was made again
    metrics.jobs.pod_gone("a", AT + 1)
    metrics.jobs.pod_gone("x", AT + 1)
    assert value(metrics, "gpudask_job_gpu_release_seconds_count") == 0
    metrics.jobs.pod_gone("b", AT + 3)
    metrics.jobs.pod_gone("b", AT + 9)
    assert value(metrics, "gpudask_job_gpu_release_seconds_count") == 1
    assert value(metrics, "gpudask_job_gpu_release_seconds_sum") == 3


def test_a_runner_that_held_no_gpus_gives_none_back():
    told: list[float] = []
    metrics = JobMetrics(told.append)
    metrics.runner_ended([], AT)
    metrics.pod_gone("a", AT)
    assert told == []


@pytest.mark.parametrize(("reason", "label"), [("RetriesSpent", "RetriesSpent"), ("made up", "Other")])
def test_what_happens_is_counted_from_zero(reason: str, label: str):
    metrics = leading()
    assert value(metrics, "gpudask_job_ends_total", reason="RunnerSucceeded") == 0
    assert value(metrics, "gpudask_job_starts_total", attempt="first") == 0
    assert value(metrics, "gpudask_job_attempts_total", outcome="lost") == 0
    metrics.count_job_end(reason)
    metrics.count_job_start("retry")
    metrics.count_job_attempt("failed")
    assert value(metrics, "gpudask_job_ends_total", reason=label) == 1
    assert value(metrics, "gpudask_job_starts_total", attempt="retry") == 1
    assert value(metrics, "gpudask_job_attempts_total", outcome="failed") == 1
