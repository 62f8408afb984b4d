"""`GpuDaskJob`: a program that runs to its end beside a Dask cluster. Its spec, rules, status, and parsing.

Other than a cluster's, a job's status is read back: how often its program was begun is known nowhere else once a pod
is gone. So it is parsed as any hostile input, and nothing but this one job depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema

from gpudask.api import Json
from gpudask.api.base import DURATION_PATTERN, Duration, Model, Rule, seconds
from gpudask.api.pod_template import TemplateMetadata
from gpudask.api.resource import (
    API_VERSION,
    CLUSTER_NAME,
    JOB_KIND,
    JOB_NAME_ADVICE,
    JOB_NAME_LENGTH_ADVICE,
    MAX_CLUSTER_NAME,
    MAX_TEMPLATE_BYTES,
    NAME_ADVICE,
    STOCK_JOB_KIND,
    Identity,
    InvalidSpecError,
    advice,
    bounded_part,
    bounded_spec,
    broken_limits,
    stock_uid,
    too_large,
    with_spec,
)
from gpudask.api.spec import Spec

MAX_RETRIES = 100
MAX_FAIL_EXIT_CODES = 64
MAX_CONTAINERS = 32
MAX_LAST_LINES_BYTES = 4096
MAX_ATTEMPTS = 10**6
_MAX_MESSAGE = 4096
_CONTAINERS_ADVICE = "the first container runs the program: write containers with a name, and command or args"
_LONGEST_SECONDS = 400 * 24 * 3600.0


class JobPhase(StrEnum):
    """The state of a job in one word, for people and programs; nothing is decided on it."""

    SUSPENDED = "Suspended"
    PENDING = "Pending"
    RUNNING = "Running"
    RETRYING = "Retrying"
    COMPLETE = "Complete"
    FAILED = "Failed"


class JobConditionType(StrEnum):
    """The conditions of a job, named as those of a batch/v1 Job."""

    COMPLETE = "Complete"
    FAILED = "Failed"
    SUSPENDED = "Suspended"


class JobReason(StrEnum):
    """Stable reasons of a job's conditions, its state and its events: programs may compare them."""

    COMPLETED = "RunnerSucceeded"
    RETRIES_SPENT = "RetriesSpent"
    FAIL_EXIT_CODE = "FailExitCode"
    DEADLINE = "DeadlineExceeded"
    INVALID = "Invalid"
    TEMPLATE_REFUSED = "TemplateRefused"
    SUSPENDED = "Suspended"
    RESUMED = "Resumed"
    NOT_SUSPENDED = "NotSuspended"
    NOT_RECORDED = "NotRecorded"
    LIMIT = "LimitExceeded"
    CLUSTER_MISSING = "ClusterMissing"
    CLUSTER_NAME_IN_USE = "ClusterNameInUse"
    CLUSTER_ENDING = "ClusterEnding"
    CLUSTER_PENDING = "ClusterPending"
    CLUSTER_INVALID = "ClusterInvalid"
    CLUSTER_REFUSED = "ClusterRefused"
    RUNNER_NAME_IN_USE = "RunnerNameInUse"
    RUNNER_REFUSED = "RunnerRefused"
    RUNNER_PENDING = "RunnerPending"
    NO_ROOM = "QuotaExceeded"
    GAVE_WAY = "GaveWay"
    RUNNER_RUNNING = "RunnerRunning"
    RUNNER_FAILED = "RunnerFailed"
    RUNNER_LOST = "RunnerLost"
    NODES_REFUSED = "NodesRefused"
    BACKING_OFF = "BackingOff"
    STATUS_UNREADABLE = "StatusUnreadable"
    API_FAILED = "ApiServerFailed"
    OPERATOR_FAILED = "OperatorFailed"


def _checked_pod_spec(value: Any) -> Json:
    """The pod spec, whose first container has to be there; what else is wrong with it the API server says."""
    containers = value.get("containers") if isinstance(value, dict) else None
    first = containers[0] if isinstance(containers, list) and containers else None
    if not isinstance(first, dict) or not isinstance(first.get("name"), str) or not first["name"]:
        raise ValueError(_CONTAINERS_ADVICE)
    assert isinstance(value, dict)
    return value


RunnerPodSpec = Annotated[
    Json,
    BeforeValidator(_checked_pod_spec),
    WithJsonSchema(
        {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "required": ["containers"],
            "properties": {
                "containers": {
                    "type": "array",
                    "description": "as in a pod; the first one is the program",
                    "minItems": 1,
                    "maxItems": MAX_CONTAINERS,
                    "items": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                        "required": ["name"],
                        "properties": {"name": {"type": "string", "description": "as in a pod", "maxLength": 63}},
                    },
                }
            },
        }
    ),
]


class RunnerTemplate(Model):
    """The pod template of the runner, as in a batch/v1 Job, over the defaults of the cluster's pods.

    The first container runs the program. Where it names no image it has the cluster's.
    """

    metadata: TemplateMetadata = Field(default_factory=lambda: TemplateMetadata.model_validate({}))
    spec: Annotated[RunnerPodSpec, Field(description="a pod's spec; restartPolicy is always Never")]


class Runner(Model):
    """The pod that runs the program."""

    template: RunnerTemplate


class JobCluster(Model):
    """The cluster of a job: one of its own, or one that is there."""

    rules = (
        Rule(
            "has(self.spec) != has(self.name)",
            "a job has a cluster of its own, spec, or uses one that is there, name: write one of the two",
            lambda cluster: (cluster.spec is None) != (cluster.name is None),
        ),
        Rule(
            f"!has(self.name) || self.name.matches('{CLUSTER_NAME}')",
            f"{NAME_ADVICE}: write the name of a GpuDaskCluster of this namespace",
            lambda cluster: cluster.name is None or re.fullmatch(CLUSTER_NAME, cluster.name) is not None,
            ".name",
        ),
    )

    spec: Spec | None = Field(
        default=None, description="of a GpuDaskCluster of the job's name, made for each attempt and deleted at its end"
    )
    name: Annotated[str, Field(min_length=1, max_length=MAX_CLUSTER_NAME)] | None = Field(
        default=None, description="a GpuDaskCluster of the same namespace, which the job leaves as it is"
    )


class KeepCluster(Model):
    """How long a cluster of the job's own stays after the end of the job, without workers."""

    on_success: Annotated[Duration, Field(description="after success")] = "0s"
    on_failure: Annotated[Duration, Field(description="after failure, to look at its scheduler")] = "0s"


class JobSpec(Model):
    """`spec` of a GpuDaskJob."""

    rules = (
        Rule(
            "!has(self.activeDeadline) || type(self.activeDeadline) != string"
            f" || !self.activeDeadline.matches('{DURATION_PATTERN}')"
            " || duration(self.activeDeadline) >= duration('1s')",
            "a program needs some time: write at least 1s, such as 1h, or leave it out for no deadline",
            lambda spec: spec.active_deadline is None or seconds(spec.active_deadline) >= 1.0,
            ".activeDeadline",
        ),
    )

    suspend: Annotated[
        bool,
        Field(description="run nothing: the runner and the job's own cluster are deleted. Queues such as Kueue set it"),
    ] = False
    runner: Runner
    cluster: JobCluster
    retries: Annotated[int, Field(ge=0, le=MAX_RETRIES, description="how often a program that failed is run again")] = 0
    backoff: Annotated[Duration, Field(description="before the first retry; it doubles with each, up to 5m")] = "10s"
    fail_exit_codes: Annotated[
        list[Annotated[int, Field(ge=1, le=255)]],
        Field(
            default_factory=list,
            max_length=MAX_FAIL_EXIT_CODES,
            description="exit codes of the program after which it is not run again",
        ),
    ]
    active_deadline: Duration | None = Field(
        default=None,
        description="since the job's start, its last one where it was suspended; then it fails. Absent: no deadline",
    )
    ttl_after_finished: Duration | None = Field(
        default=None, description="the job is deleted so long after its end, with all that it owns. Absent: it stays"
    )
    keep_cluster: Annotated[
        KeepCluster, Field(description="how long the job's own cluster stays after the end, without workers")
    ] = Field(default_factory=lambda: KeepCluster.model_validate({}))

    @property
    def backoff_seconds(self) -> float:
        """`backoff` in seconds."""
        return _bounded(self.backoff)

    @property
    def deadline_seconds(self) -> float | None:
        """`activeDeadline` in seconds; None: none."""
        return None if self.active_deadline is None else _bounded(self.active_deadline)

    @property
    def ttl_seconds(self) -> float | None:
        """`ttlAfterFinished` in seconds; None: for ever."""
        return None if self.ttl_after_finished is None else _bounded(self.ttl_after_finished)

    def keep_seconds(self, *, succeeded: bool) -> float:
        """For how many seconds the job's own cluster stays after its end."""
        return _bounded(self.keep_cluster.on_success if succeeded else self.keep_cluster.on_failure)


def _bounded(duration: str) -> float:
    """The seconds of `duration`, at most some that a time can still be moved by."""
    return min(seconds(duration), _LONGEST_SECONDS)


_Time = Annotated[str, Field(max_length=40)]
_Name = Annotated[str, Field(max_length=253)]


class JobCondition(Model):
    """One condition, as Kubernetes' API conventions have it."""

    type: Annotated[str, Field(max_length=316, description=f"what it is about: {', '.join(JobConditionType)}")]
    status: Annotated[Literal["True", "False", "Unknown"], Field(description="whether it holds")]
    reason: Annotated[str, Field(max_length=1024, description="why, in one stable word")] = ""
    message: Annotated[str, Field(max_length=_MAX_MESSAGE, description="why, for people")] = ""
    last_transition_time: Annotated[_Time, Field(description="when status last changed, as 2026-12-01T18:00:00Z")] = ""


class RunnerStatus(Model):
    """The runner of the last attempt."""

    pod: Annotated[_Name, Field(description="the name of its pod")] = ""
    uid: Annotated[
        _Name, Field(description="the uid of its pod: no other pod runs this attempt, whatever becomes of this one")
    ] = ""
    started_at: Annotated[_Time, Field(description="when the program was seen to run, as 2026-12-01T18:00:00Z")] = ""
    ended_at: Annotated[_Time, Field(description="when the program was seen to have ended")] = ""
    exit_code: Annotated[int | None, Field(description="the program's exit code, where it is known")] = None
    reason: Annotated[str, Field(max_length=253, description="the kubelet's reason, such as OOMKilled or Error")] = ""
    last_lines: Annotated[
        str, Field(max_length=MAX_LAST_LINES_BYTES, description="the last lines that the program wrote")
    ] = ""


class JobStatus(Model):
    """`status` of a GpuDaskJob."""

    observed_generation: Annotated[int, Field(description="metadata.generation that all of this is about")] = 0
    phase: Annotated[str, Field(max_length=63, description=f"a summary: {', '.join(JobPhase)}")] = ""
    reason: Annotated[
        str, Field(max_length=253, description=f"why the phase is what it is: {', '.join(JobReason)}")
    ] = ""
    message: Annotated[str, Field(max_length=_MAX_MESSAGE, description="the same, for people")] = ""
    conditions: Annotated[
        list[JobCondition],
        Field(default_factory=list, max_length=16, description="one of each; `kubectl wait` looks at Complete, Failed"),
    ]
    cluster: Annotated[_Name, Field(description="the name of the cluster that the program uses")] = ""
    attempts: Annotated[
        int, Field(ge=0, le=MAX_ATTEMPTS, description="runners begun, those that suspend ended included")
    ] = 0
    failures: Annotated[int, Field(ge=0, le=MAX_ATTEMPTS, description="of these, those that failed")] = 0
    refusals: Annotated[
        int, Field(ge=0, le=MAX_ATTEMPTS, description="of the last ones, in a row, those that never got to run")
    ] = 0
    start_time: Annotated[
        _Time, Field(description="when the job began, again where it was suspended, as 2026-12-01T18:00:00Z")
    ] = ""
    completion_time: Annotated[_Time, Field(description="the end of the job")] = ""
    runner: RunnerStatus = Field(default_factory=RunnerStatus)

    def condition(self, kind: JobConditionType) -> JobCondition | None:
        """The condition of this type."""
        return next((item for item in self.conditions if item.type == kind), None)

    def holds(self, kind: JobConditionType) -> bool:
        """Whether the condition of this type is there and true."""
        found = self.condition(kind)
        return found is not None and found.status == "True"

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended, for good."""
        return self.holds(JobConditionType.COMPLETE) or self.holds(JobConditionType.FAILED)


@dataclass(frozen=True)
class Job(Identity):
    """A GpuDaskJob as the operator acts on it. `cluster_body`: `spec.cluster.spec` as it is written.

    `stock_uid`: the uid of the DaskJob that it serves; empty: none.
    """

    generation: int
    deleting: bool
    spec: JobSpec
    cluster_body: Json
    stock_uid: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, for logs."""
        return f"{self.namespace}/{self.name}"

    @property
    def cluster_name(self) -> str:
        """The name of the cluster that the program uses."""
        return self.spec.cluster.name or self.name

    @property
    def has_own_cluster(self) -> bool:
        """Whether the job makes and deletes its cluster."""
        return self.spec.cluster.spec is not None


def job_reference(job: Identity) -> Json:
    """The owner reference for objects of a job."""
    return {"apiVersion": API_VERSION, "kind": JOB_KIND, "name": job.name, "uid": job.uid, "controller": True}


def parse_job(body: Json) -> Job:
    """The job of a JSON object from the API server.

    Raises:
        InvalidSpecError: the spec or the name breaks a rule, or the spec is too large or too deep.
    """
    metadata, written = body["metadata"], body.get("spec")
    _check_name(metadata["name"])
    if broken := broken_limits_of_job(written):
        raise InvalidSpecError("; ".join(broken))
    try:
        spec = JobSpec.model_validate(written or {})
    except ValidationError as error:
        raise InvalidSpecError(advice(error, root="spec")) from error
    cluster = (written or {})["cluster"].get("spec") if spec.cluster.spec is not None else None
    return Job(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        deleting="deletionTimestamp" in metadata,
        spec=spec,
        cluster_body=cluster or {},
        stock_uid=stock_uid(metadata, STOCK_JOB_KIND),
    )


def parse_job_again(body: Json, before: Job) -> Job:
    """The job in a newer copy of the same generation: the spec is as it was."""
    metadata = body["metadata"]
    return replace(before, deleting="deletionTimestamp" in metadata, stock_uid=stock_uid(metadata, STOCK_JOB_KIND))


class UnreadableStatusError(ValueError):
    """A status that is there, and does not say what has run. The text names the field."""


def parse_job_status(body: Json) -> JobStatus:
    """The status as last written; empty where there is none.

    What is only told may be longer than this version has it, and is cut. What decides whether a program runs is never
    guessed: a job whose attempts were read as none would run again.

    Raises:
        UnreadableStatusError: that part cannot be read.
    """
    written = body.get("status")
    if written is None:
        return JobStatus.model_validate({})
    try:
        return JobStatus.model_validate(written)
    except ValidationError:
        pass
    try:
        return JobStatus.model_validate(_cut(written))
    except ValidationError as error:
        raise UnreadableStatusError(advice(error, root="status")) from error


def _cut(status: Any) -> Any:
    """A status without what is only told, where that is of a foreign shape, or longer than this version has it."""
    if not isinstance(status, dict):
        return status
    kept = {key: value for key, value in status.items() if key not in _TOLD_LENGTHS} | _told(status, _TOLD_LENGTHS)
    if isinstance(runner := kept.get("runner"), dict):
        decides = {key: value for key, value in runner.items() if key not in _RUNNER_TOLD_LENGTHS}
        kept["runner"] = decides | _told(runner, _RUNNER_TOLD_LENGTHS)
        if not isinstance(runner.get("exitCode"), int | None):
            del kept["runner"]["exitCode"]
    if isinstance(conditions := kept.get("conditions"), list):
        ours = [item for item in conditions if isinstance(item, dict) and item.get("type") in {*JobConditionType}]
        kept["conditions"] = [
            {"type": item["type"], "status": item.get("status")} | _told(item, _CONDITION_TOLD) for item in ours
        ]
    return kept


def _told(written: Json, lengths: Mapping[str, int]) -> Json:
    return {key: value[:most] for key, most in lengths.items() if isinstance(value := written.get(key), str)}


# What nothing is decided by, and how long each may be. `reason` of a runner says whether suspension ended it, which
# only shortens a wait.
_TOLD_LENGTHS = {"phase": 63, "reason": 253, "message": _MAX_MESSAGE, "cluster": 253}
_RUNNER_TOLD_LENGTHS = {"reason": 253, "lastLines": MAX_LAST_LINES_BYTES}
_CONDITION_TOLD = {"reason": 1024, "message": _MAX_MESSAGE, "lastTransitionTime": 40}


def _check_name(name: str) -> None:
    if len(name) > MAX_CLUSTER_NAME:
        raise InvalidSpecError(f"metadata.name: {JOB_NAME_LENGTH_ADVICE}")
    if re.fullmatch(CLUSTER_NAME, name) is None:
        raise InvalidSpecError(f"metadata.name: {JOB_NAME_ADVICE}")


def bounded_job_spec(spec: Any) -> Any:
    """As `resource.bounded_spec`, of a job's spec: its parts are kept, or their outlines."""
    if not isinstance(spec, dict):
        return spec
    runner, cluster = spec.get("runner"), spec.get("cluster")
    kept_runner = bounded_part("spec.runner", runner, MAX_TEMPLATE_BYTES)
    inner = cluster.get("spec") if isinstance(cluster, dict) else None
    kept_inner = bounded_spec(inner)
    if kept_runner is runner and kept_inner is inner:
        return spec
    bounded = spec | ({"runner": kept_runner} if "runner" in spec else {})
    return bounded | ({"cluster": cluster | {"spec": kept_inner}} if isinstance(cluster, dict) and inner else {})


def bounded_job(body: Json) -> Json:
    """The GpuDaskJob `body` as it may be kept. Its status is within the definition's limits, and is never guessed."""
    return with_spec(body, bounded_job_spec(body.get("spec")))


def broken_limits_of_job(spec: Any) -> list[str]:
    """As `resource.broken_limits`, of a job's spec."""
    spec = spec if isinstance(spec, dict) else {}
    template = too_large("spec.runner", spec.get("runner"), MAX_TEMPLATE_BYTES)
    cluster = spec.get("cluster")
    inner = broken_limits(cluster.get("spec")) if isinstance(cluster, dict) else []
    return [*([template] if template else []), *(f"spec.cluster.{text}" for text in inner)]
