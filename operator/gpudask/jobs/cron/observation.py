"""The observation of a cron job, and what a plan asks for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpudask.api import Json
from gpudask.api.cron_job import CronJob, CronJobReason, CronJobStatus
from gpudask.api.job import JobConditionType, JobStatus, UnreadableStatusError, parse_job_status
from gpudask.api.resource import CRON_JOB_KIND
from gpudask.api.status import epoch
from gpudask.jobs.cron.schedule import MINUTE_SECONDS
from gpudask.planning.observed import fields
from gpudask.planning.observed.parser import owner_key

_MINUTE_DIGITS = 10


@dataclass(frozen=True)
class SeenJob:
    """A job that the cron job controls. `time`: of its name, for which it was made; None: it has another name.

    `begun`: its program may have run. `ended_at`: seconds since the epoch; None: it has not ended.
    """

    name: str
    uid: str
    version: str
    time: float | None
    begun: bool = False
    ended_at: float | None = None
    succeeded: bool = False
    deleting: bool = False


@dataclass(frozen=True)
class Problem:
    """Why no job can be made. `wait_seconds`: until that is tried again."""

    reason: CronJobReason
    message: str
    wait_seconds: float = 0.0


@dataclass(frozen=True)
class CronJobObservation:
    """A cron job at a moment: `now` is the API server's time, in seconds since the epoch.

    `jobs`: all that it controls; one of `status.active` that is not among them is gone. `problem`: of the last try.
    """

    cron_job: CronJob
    status: CronJobStatus
    jobs: tuple[SeenJob, ...]
    now: float
    problem: Problem | None = None


@dataclass(frozen=True)
class CreateJob:
    """Make the job of this time, which runs once the status has its uid."""

    time: float


@dataclass(frozen=True)
class DeleteJob:
    """Delete a job: one that was never recorded, is replaced, or is one too many of the history."""

    job: SeenJob


Action = CreateJob | DeleteJob


@dataclass(frozen=True)
class CronJobPlan:
    """The actions, the status to write, and when to look again at the latest, in seconds; None: not by itself."""

    actions: tuple[Action, ...]
    status: CronJobStatus
    requeue_after: float | None = None


def job_name(cron_job: str, time: float) -> str:
    """The name of the job of a time: the same in whichever operator, whenever it looks."""
    return f"{cron_job}-{int(time // MINUTE_SECONDS)}"


def controller_key(metadata: Json) -> str:
    """The `Identity.owner_key` of the GpuDaskCronJob that controls a job; empty where none does."""
    try:
        return owner_key(metadata, CRON_JOB_KIND)
    except fields.UnreadableError:
        return ""


class JobReader:
    """Reads the jobs of one cron job, each version once: a pass costs what has changed, not what is there."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], SeenJob] = {}

    def read(self, bodies: Iterable[Json], cron_job: str) -> tuple[SeenJob, ...]:
        """The jobs of these objects of the API server, by name, as the cron job of this name sees them."""
        known, self._known = self._known, {}
        for body in bodies:
            version = body["metadata"]["uid"], str(body["metadata"].get("resourceVersion", ""))
            self._known[version] = known.get(version) or seen_job(body, cron_job)
        return tuple(sorted(self._known.values(), key=lambda job: job.name))


def seen_job(body: Json, cron_job: str) -> SeenJob:
    """A job of the API server, as the cron job of this name sees it.

    One whose status cannot be read may have run, and goes on: it holds up itself, and no other job of the schedule.
    """
    metadata, status = body["metadata"], JobStatus.model_validate({})
    is_readable = True
    try:
        status = parse_job_status(body)
    except UnreadableStatusError:
        is_readable = False
    prefix, _, minute = metadata["name"].rpartition("-")
    is_timed = prefix == cron_job and minute.isascii() and minute.isdecimal() and len(minute) <= _MINUTE_DIGITS
    ended_at = epoch(status.completion_time)
    return SeenJob(
        name=metadata["name"],
        uid=metadata["uid"],
        version=str(metadata.get("resourceVersion", "")),
        time=int(minute) * MINUTE_SECONDS if is_timed else None,
        begun=status.attempts > 0 or not is_readable,
        ended_at=(ended_at or 0.0) if status.has_ended else None,
        succeeded=status.holds(JobConditionType.COMPLETE),
        deleting="deletionTimestamp" in metadata,
    )
