"""`GpuDaskCronJob`: makes a GpuDaskJob at each time of a schedule. Its spec, rules, status, and parsing.

Its status is read back, as a job's is: up to when all times are decided, and which jobs may begin, is known nowhere
else.
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from gpudask.api import Json
from gpudask.api.base import DURATION_PATTERN, Duration, Model, Rule, seconds
from gpudask.api.job import JobSpec, UnreadableStatusError, bounded_job_spec, broken_limits_of_job
from gpudask.api.pod_template import TemplateMetadata, without_reserved
from gpudask.api.resource import (
    ANNOTATION_SCHEDULED,
    API_VERSION,
    CLUSTER_NAME,
    CRON_JOB_KIND,
    CRON_JOB_NAME_ADVICE,
    CRON_JOB_NAME_LENGTH_ADVICE,
    JOB_KIND,
    LABEL_CRON_JOB,
    MAX_CRON_JOB_NAME,
    Identity,
    InvalidSpecError,
    advice,
    with_spec,
)
from gpudask.api.status import epoch

MAX_SCHEDULE = 256
MAX_TIME_ZONE = 64
MAX_HISTORY = 100
# Jobs at once: what a schedule of every minute makes of programs that hang has an end.
MAX_ACTIVE = 100
DEFAULT_TIME_ZONE = "Etc/UTC"
_MAX_MESSAGE = 1024
_LONGEST_SECONDS = 400 * 24 * 3600.0
# Five fields of which each is made of these letters, or a name; what they mean is checked by the operator.
SCHEDULE_PATTERN = r"^(@[a-z]+|[-0-9A-Za-z*?,/]+( +[-0-9A-Za-z*?,/]+){4})$"
SCHEDULE_ADVICE = (
    "a schedule is five fields, minute hour day-of-month month day-of-week, such as 30 6 * * mon-fri, or one of"
    " @yearly, @monthly, @weekly, @daily, @hourly"
)
TIME_ZONE_ADVICE = "a schedule names no time zone: write it into spec.timeZone, such as Europe/Vienna"


class ConcurrencyPolicy(StrEnum):
    """What becomes of a time at which the job of an earlier one has not ended."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"


class CronJobConditionType(StrEnum):
    """The conditions of a cron job."""

    ACCEPTED = "Accepted"
    STARTING = "Starting"


class CronJobReason(StrEnum):
    """Stable reasons of a cron job's conditions and events: programs may compare them."""

    ACCEPTED = "Accepted"
    INVALID = "Invalid"
    SCHEDULE = "InvalidSchedule"
    TIME_ZONE = "UnknownTimeZone"
    LIMIT = "LimitExceeded"
    NAME_IN_USE = "JobNameInUse"
    TEMPLATE_REFUSED = "TemplateRefused"
    REFUSED = "JobRefused"
    WAITS = "JobAlreadyActive"
    TOO_MANY = "TooManyActive"
    ON_TIME = "OnTime"
    MISSED = "MissedSchedule"
    TOO_MANY_MISSED = "TooManyMissedTimes"
    BEGUN = "SuccessfulCreate"
    REPLACED = "Replaced"
    SUSPENDED = "Suspended"
    OPERATOR_FAILED = "OperatorFailed"


class JobTemplate(Model):
    """What each job is made of."""

    metadata: TemplateMetadata = Field(default_factory=lambda: TemplateMetadata.model_validate({}))
    spec: JobSpec


class CronJobSpec(Model):
    """`spec` of a GpuDaskCronJob, with the meaning of a batch/v1 CronJob's fields."""

    rules = (
        Rule(
            "!self.schedule.contains('TZ=')",
            TIME_ZONE_ADVICE,
            lambda spec: "TZ=" not in spec.schedule.upper(),
            ".schedule",
        ),
        Rule(
            f"self.schedule.contains('TZ=') || self.schedule.matches('{SCHEDULE_PATTERN}')",
            SCHEDULE_ADVICE,
            lambda spec: "TZ=" in spec.schedule or re.fullmatch(SCHEDULE_PATTERN, spec.schedule) is not None,
            ".schedule",
        ),
        Rule(
            "!has(self.startingDeadline) || type(self.startingDeadline) != string"
            f" || !self.startingDeadline.matches('{DURATION_PATTERN}')"
            " || duration(self.startingDeadline) >= duration('1s')",
            "a job needs some time to be made: write at least 1s, such as 10m, or leave it out for no deadline",
            lambda spec: spec.starting_deadline is None or seconds(spec.starting_deadline) >= 1.0,
            ".startingDeadline",
        ),
    )

    schedule: Annotated[
        str,
        Field(
            min_length=1,
            max_length=MAX_SCHEDULE,
            description="five fields, minute hour day-of-month month day-of-week, or @hourly, @daily, @weekly,"
            " @monthly, @yearly",
        ),
    ]
    time_zone: Annotated[
        str,
        Field(
            min_length=1, max_length=MAX_TIME_ZONE, description="of the schedule, by its IANA name, as Europe/Vienna"
        ),
    ] = DEFAULT_TIME_ZONE
    concurrency_policy: Annotated[
        ConcurrencyPolicy,
        Field(description="where the job of an earlier time has not ended: begin, wait for it, or delete it first"),
    ] = ConcurrencyPolicy.ALLOW
    starting_deadline: Duration | None = Field(
        default=None, description="a time that could not be begun for so long is passed over. Absent: it never is"
    )
    suspend: Annotated[bool, Field(description="make no jobs; those that are there go on")] = False
    successful_jobs_history_limit: Annotated[
        int, Field(ge=0, le=MAX_HISTORY, description="jobs that succeeded that are kept; older ones are deleted")
    ] = 3
    failed_jobs_history_limit: Annotated[
        int, Field(ge=0, le=MAX_HISTORY, description="jobs that failed that are kept; older ones are deleted")
    ] = 1
    job_template: Annotated[JobTemplate, Field(description="of the GpuDaskJobs")]

    @property
    def deadline_seconds(self) -> float | None:
        """`startingDeadline` in seconds; None: none."""
        return None if self.starting_deadline is None else min(seconds(self.starting_deadline), _LONGEST_SECONDS)


_Time = Annotated[str, Field(max_length=40)]
_Name = Annotated[str, Field(max_length=253)]


class CronJobCondition(Model):
    """One condition, as Kubernetes' API conventions have it."""

    type: Annotated[str, Field(max_length=316, description=f"what it is about: {', '.join(CronJobConditionType)}")]
    status: Annotated[Literal["True", "False", "Unknown"], Field(description="whether it holds")]
    reason: Annotated[str, Field(max_length=1024, description=f"why: {', '.join(CronJobReason)}")] = ""
    message: Annotated[str, Field(max_length=_MAX_MESSAGE, description="why, for people")] = ""
    last_transition_time: Annotated[_Time, Field(description="when status last changed, as 2026-12-01T18:00:00Z")] = ""


class ActiveJob(Model):
    """A job that was begun, and has not ended."""

    name: Annotated[_Name, Field(description="of the GpuDaskJob")]
    uid: Annotated[_Name, Field(description="of the GpuDaskJob: no other one is begun for its time")]
    scheduled_time: Annotated[_Time, Field(description="for which it was made")] = ""


class CronJobStatus(Model):
    """`status` of a GpuDaskCronJob."""

    observed_generation: Annotated[int, Field(description="metadata.generation that all of this is about")] = 0
    conditions: Annotated[list[CronJobCondition], Field(default_factory=list, max_length=16, description="one of each")]
    active: Annotated[
        list[ActiveJob], Field(default_factory=list, max_length=MAX_ACTIVE, description="jobs that have not ended")
    ]
    active_jobs: Annotated[int, Field(ge=0, description="how many these are")] = 0
    last_schedule_time: Annotated[_Time, Field(description="the last time of the schedule that was begun")] = ""
    last_successful_time: Annotated[_Time, Field(description="when a job last succeeded")] = ""
    next_schedule_time: Annotated[_Time, Field(description="the next time of the schedule; absent: none")] = ""
    decided_time: Annotated[
        _Time, Field(description="up to this one all times are decided: they were begun, or passed over")
    ] = ""
    missed: Annotated[
        int, Field(ge=0, le=10**9, description="times that were passed over, those while it was suspended aside")
    ] = 0
    suspended: Annotated[bool, Field(description="whether spec.suspend was seen to be true")] = False

    def condition(self, kind: CronJobConditionType) -> CronJobCondition | None:
        """The condition of this type."""
        return next((item for item in self.conditions if item.type == kind), None)

    def is_active(self, uid: str) -> bool:
        """Whether the job with this uid may run."""
        return any(item.uid == uid for item in self.active)


@dataclass(frozen=True)
class CronJob(Identity):
    """A GpuDaskCronJob as the operator acts on it.

    `created`: seconds since the epoch. `job_body`: `spec.jobTemplate.spec` as it is written.
    """

    generation: int
    deleting: bool
    created: float
    spec: CronJobSpec
    job_body: Json

    @property
    def key(self) -> str:
        """`namespace/name`, for logs."""
        return f"{self.namespace}/{self.name}"

    def job_at(self, scheduled_time: str, name: str) -> Json:
        """The job of this name that it makes for that time of its schedule, which is written as RFC 3339."""
        metadata = self.spec.job_template.metadata
        owner = {"apiVersion": API_VERSION, "kind": CRON_JOB_KIND, "name": self.name, "uid": self.uid}
        return {
            "apiVersion": API_VERSION,
            "kind": JOB_KIND,
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": without_reserved(metadata.labels) | {LABEL_CRON_JOB: self.name},
                "annotations": without_reserved(metadata.annotations) | {ANNOTATION_SCHEDULED: scheduled_time},
                "ownerReferences": [owner | {"controller": True}],
            },
            "spec": deepcopy(self.job_body),
        }


def parse_cron_job(body: Json) -> CronJob:
    """The cron job of a JSON object from the API server.

    Raises:
        InvalidSpecError: the spec or the name breaks a rule, or the template is too large or too deep.
    """
    metadata, written = body["metadata"], body.get("spec")
    if len(metadata["name"]) > MAX_CRON_JOB_NAME:
        raise InvalidSpecError(f"metadata.name: {CRON_JOB_NAME_LENGTH_ADVICE}")
    if re.fullmatch(CLUSTER_NAME, metadata["name"]) is None:
        raise InvalidSpecError(f"metadata.name: {CRON_JOB_NAME_ADVICE}")
    job = _object(_object(_object(written).get("jobTemplate")).get("spec"))
    if broken := broken_limits_of_job(job):
        raise InvalidSpecError("; ".join(f"spec.jobTemplate.{text}" for text in broken))
    try:
        spec = CronJobSpec.model_validate(written or {})
    except ValidationError as error:
        raise InvalidSpecError(advice(error, root="spec")) from error
    return CronJob(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        deleting="deletionTimestamp" in metadata,
        created=epoch(str(metadata.get("creationTimestamp"))) or 0.0,
        spec=spec,
        job_body=job,
    )


def parse_cron_job_again(body: Json, before: CronJob) -> CronJob:
    """The cron job in a newer copy of the same generation: the spec is as it was."""
    return replace(before, deleting="deletionTimestamp" in body["metadata"])


def bounded_cron_job(body: Json) -> Json:
    """The GpuDaskCronJob `body` as it may be kept, as `job.bounded_job`."""
    spec = body.get("spec")
    template = _object(_object(spec).get("jobTemplate"))
    inner = template.get("spec")
    kept = bounded_job_spec(inner)
    return body if kept is inner else with_spec(body, _object(spec) | {"jobTemplate": template | {"spec": kept}})


def parse_cron_job_status(body: Json) -> CronJobStatus:
    """The status as last written; empty where there is none.

    It is never guessed: read as empty, a time that was begun would be begun again.

    Raises:
        UnreadableStatusError: it is there, and cannot be read.
    """
    written = body.get("status")
    if written is None:
        return CronJobStatus.model_validate({})
    try:
        status = CronJobStatus.model_validate(written)
    except ValidationError as error:
        raise UnreadableStatusError(advice(error, root="status")) from error
    if status.decided_time and epoch(status.decided_time) is None:
        raise UnreadableStatusError(f"status.decidedTime: {status.decided_time!r} is no time")
    return status


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
