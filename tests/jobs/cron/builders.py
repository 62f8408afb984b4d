"""A cron job and what is there of it, in one line each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpudask.api import Json
from gpudask.api.cron_job import CronJob, CronJobStatus, parse_cron_job
from gpudask.api.status import iso
from gpudask.jobs.cron.observation import CronJobObservation, SeenJob, job_name
from tests.api.test_job import OWN, a_job

NOON = 1_795_780_800.0  # 2026-11-27T12:00:00Z


def a_cron_job(schedule: str = "*/10 * * * *", *, name: str = "nightly", **spec: Any) -> Json:
    """A manifest."""
    template = {"spec": a_job(**OWN)["spec"]}
    metadata = {"name": name, "namespace": "lab", "uid": "cron-1", "creationTimestamp": iso(NOON - 60)}
    head = {"apiVersion": "gpudask.dev/v1alpha1", "kind": "GpuDaskCronJob"}
    return head | {"metadata": metadata, "spec": {"schedule": schedule, "jobTemplate": template} | spec}


def cron_job(schedule: str = "*/10 * * * *", **spec: Any) -> CronJob:
    """A cron job, made a minute before noon."""
    return parse_cron_job(a_cron_job(schedule, **spec))


def status(**fields: Any) -> CronJobStatus:
    """A cron job's status."""
    return CronJobStatus.model_validate(fields)


def decided(time: float, *active: SeenJob, **more: Any) -> CronJobStatus:
    """The status once a time is decided."""
    rows = [{"name": job.name, "uid": job.uid, "scheduledTime": iso(job.time or 0.0)} for job in active]
    return status(decidedTime=iso(time, to="seconds"), active=rows, activeJobs=len(rows), **more)


def job(time: float, **more: Any) -> SeenJob:
    """The job of a time, which has not begun."""
    name = job_name("nightly", time)
    return replace(SeenJob(name, f"uid-{name}", "1", time), **more)


def seen(of: CronJob, *jobs: SeenJob, at: float = NOON, **more: Any) -> CronJobObservation:
    """What is there of a cron job."""
    return replace(CronJobObservation(of, status(), jobs, at), **more)
