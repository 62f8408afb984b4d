"""What the operator reports: the models of `status`, its conditions and their reasons.

The operator never reads its own status to decide what to do, but for counters that grow (GPU-seconds).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from gpudask.api.model import Model


class ConditionType(StrEnum):
    """The conditions; `Ready` is what `kubectl wait` and GitOps tools look at."""

    READY = "Ready"
    ACCEPTED = "Accepted"
    SCHEDULER_READY = "SchedulerReady"
    DEMAND_SERVABLE = "DemandServable"
    DEGRADED = "Degraded"


class Reason(StrEnum):
    """Stable reasons of conditions and events: programs may compare them."""

    ALL_READY = "AllReady"
    PODS_MISSING = "PodsMissing"
    SUSPENDED = "Suspended"
    SUSPENDING = "Suspending"
    VALID = "Valid"
    INVALID = "Invalid"
    TEMPLATE_REFUSED = "TemplateRefused"
    NAME_CONFLICT = "NameConflict"
    OVERRIDE_IGNORED = "OverrideIgnored"
    SCHEDULER_RUNNING = "SchedulerRunning"
    SCHEDULER_PENDING = "SchedulerPending"
    SCHEDULER_UNREACHABLE = "SchedulerUnreachable"
    SCHEDULER_OUTDATED = "SchedulerWaitsForRollout"
    PRELOAD_FAILED = "PreloadFailed"
    DEMAND_UNKNOWN = "DemandUnknown"
    SERVABLE = "Servable"
    UNSERVABLE = "NoPoolServes"
    UNSCHEDULABLE = "Unschedulable"
    QUOTA = "QuotaExceeded"
    FORBIDDEN = "Forbidden"
    IMAGE = "ImageNotPulled"
    CRASHING = "PodsFail"
    UNREGISTERED = "WorkerNotRegistered"
    API_FAILED = "ApiServerFailed"
    DRAIN_BLOCKED = "DrainBlocked"
    HEALTHY = "Healthy"
    SCALED_UP = "ScaledUp"
    SCALED_DOWN = "ScaledDown"
    POD_REPLACED = "PodReplaced"
    ROLLOUT = "RollingOut"


class Condition(Model):
    """One condition, as Kubernetes' API conventions have it."""

    type: ConditionType
    status: Literal["True", "False", "Unknown"]
    reason: Reason
    message: Annotated[str, Field(max_length=32768)] = ""
    observed_generation: int = 0
    last_transition_time: str = ""


class Demand(Model):
    """Tasks that a pool could serve, as last seen."""

    waiting: Annotated[int, Field(description="tasks that could run if a worker had room")] = 0
    running: Annotated[int, Field(description="tasks on the pool's workers")] = 0


class Termination(Model):
    """How a container of the pool last ended."""

    pod: str
    reason: str = ""
    exit_code: int = 0
    message: Annotated[str, Field(max_length=4096)] = ""


class PoolStatus(Model):
    """One pool. `desired`, `pods`, `ready`, `pending`, `unschedulable` and `retiring` count pods."""

    name: str
    desired: int = 0
    pods: int = 0
    ready: int = 0
    pending: int = 0
    unschedulable: int = 0
    retiring: int = 0
    outdated: Annotated[int, Field(description="pods made from an older spec")] = 0
    workers: Annotated[int, Field(description="Dask workers registered")] = 0
    gpus_held: Annotated[int, Field(description="GPUs of pods that have a node")] = 0
    gpus_busy: Annotated[int, Field(description="GPUs of workers that have work")] = 0
    gpu_seconds_held: float = 0.0
    gpu_seconds_used: float = 0.0
    demand: Demand = Field(default_factory=Demand)
    size_set_by: Annotated[str, Field(description="autoscale, spec, suspend, or who set the override")] = ""
    reason: Annotated[str, Field(description="why it has this size")] = ""
    message: Annotated[str, Field(description="what keeps it from progress, in the words of who said it")] = ""
    held: Annotated[str, Field(description="what keeps idle pods")] = ""
    last_scale_time: str = ""
    last_scale_reason: str = ""
    last_termination: Termination | None = None


class Summary(Model):
    """Sums for the printer columns, `ready/desired` in pods."""

    cpu: str = "0/0"
    gpu: str = "0/0"


class SchedulerStatus(Model):
    """Where the scheduler is."""

    pod: str = ""
    address: Annotated[str, Field(description="for clients inside the cluster")] = ""
    dashboard: str = ""
    ready: bool = False


class Status(Model):
    """`status` of a GpuDaskCluster."""

    observed_generation: int = 0
    phase: Annotated[str, Field(description="a summary for people: Pending, Running, Degraded, Suspended, Invalid")] = (
        ""
    )
    reason: Annotated[str, Field(description="why the phase is what it is")] = ""
    conditions: list[Condition] = Field(default_factory=list)
    scheduler: SchedulerStatus = Field(default_factory=SchedulerStatus)
    summary: Summary = Field(default_factory=Summary)
    pools: list[PoolStatus] = Field(default_factory=list)
    counted_at: Annotated[str, Field(description="up to when the GPU-seconds count")] = ""
