"""`status`, as the operator reports it: its models, conditions, reasons and times.

The operator never reads its own status to decide what to do, but for counters that grow (GPU-seconds).
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from gpudask.api.base import Model
from gpudask.api.reasons import Cause, ConditionType, Reason


class Phase(StrEnum):
    """The state of a cluster in one word, for people; nothing is decided on it."""

    PENDING = "Pending"
    RUNNING = "Running"
    DEGRADED = "Degraded"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    INVALID = "Invalid"


# Types and reasons are no enumerations in the CRD: a newer operator has some that an installed CRD does not know, and
# an older operator meets those that a newer one wrote. The patterns and lengths are those of metav1.Condition.
# https://pkg.go.dev/k8s.io/apimachinery/pkg/apis/meta/v1#Condition
_TYPE = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
_REASON = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"


class Condition(Model):
    """One condition, as Kubernetes' API conventions have it."""

    type: Annotated[
        str, Field(pattern=_TYPE, max_length=316, description=f"what it is about: {', '.join(ConditionType)}")
    ]
    status: Annotated[Literal["True", "False", "Unknown"], Field(description="whether it holds")]
    reason: Annotated[
        str,
        Field(
            pattern=_REASON,
            max_length=1024,
            description=f"why, in one stable word, which programs may compare: {', '.join(Reason)}",
        ),
    ]
    message: Annotated[str, Field(max_length=32768, description="why, for people")] = ""
    observed_generation: Annotated[int, Field(description="metadata.generation that it was found for")] = 0
    last_transition_time: Annotated[str, Field(description="when status last changed, as 2026-12-01T18:00:00Z")] = ""


class Demand(Model):
    """Tasks that a pool could serve, as last seen."""

    waiting: Annotated[int, Field(description="tasks that could run if a worker had room")] = 0
    running: Annotated[int, Field(description="tasks on the pool's workers, those in their queues included")] = 0
    pods: Annotated[float, Field(description="as many pods as these tasks fill, if all ran at once")] = 0.0
    pods_unknown: Annotated[float, Field(description="of `pods`, those for tasks of unknown duration")] = 0.0
    pod_seconds: Annotated[float, Field(description="seconds in which one pod would do those of known duration")] = 0.0
    next_seconds: Annotated[
        float | None, Field(description="in how many seconds the first task that waits for inputs can run, if known")
    ] = None


class Termination(Model):
    """The last termination of a container of the pool."""

    pod: Annotated[str, Field(description="whose container")]
    reason: Annotated[str, Field(description="the kubelet's reason, such as OOMKilled or Error")] = ""
    exit_code: Annotated[int, Field(description="of the main process; 0 where only the pod's end is known")] = 0
    message: Annotated[str, Field(max_length=4096, description="the last lines that it wrote")] = ""


class CauseSeconds(Model):
    """The GPUs that pods hold for one cause."""

    cause: Annotated[
        str,
        Field(pattern=_REASON, max_length=63, description=f"why pods hold them: {', '.join(Cause)} (docs/ledger.md)"),
    ]
    gpus: Annotated[int, Field(description="GPUs that are held for it now")] = 0
    gpu_seconds: Annotated[float, Field(description="GPU-seconds so far")] = 0.0


class OwnerSeconds(Model):
    """The work of one owner on the pool's GPUs."""

    owner: Annotated[
        str,
        Field(
            max_length=63,
            description="the Dask annotation `owner` of the tasks; empty: those without, and of further owners",
        ),
    ]
    gpu_seconds: Annotated[float, Field(description="GPU-seconds so far")] = 0.0


class PoolStatus(Model):
    """One pool. `desired`, `pods`, `ready`, `pending`, `unschedulable`, `retiring` and `outdated` count pods."""

    name: Annotated[str, Field(description="the pool's")]
    removed: Annotated[
        bool, Field(description="whether the spec no longer has it: the row stays for its GPU-seconds")
    ] = False
    desired: Annotated[int, Field(description="pods that it should have")] = 0
    pods: Annotated[int, Field(description="pods that exist, those that leave included")] = 0
    ready: Annotated[
        int, Field(description="pods whose workers are registered; while the scheduler is silent, those that are Ready")
    ] = 0
    pending: Annotated[int, Field(description="pods whose container does not run yet")] = 0
    unschedulable: Annotated[int, Field(description="pending pods that no node can take; message says why")] = 0
    retiring: Annotated[int, Field(description="pods that are retiring: they drain, or are being deleted")] = 0
    outdated: Annotated[int, Field(description="pods made from an older spec")] = 0
    workers: Annotated[int, Field(description="Dask workers registered")] = 0
    gpus_held: Annotated[int, Field(description="GPUs of pods that have a node")] = 0
    gpus_busy: Annotated[int, Field(description="GPUs of workers that have work")] = 0
    gpu_seconds_held: Annotated[
        float, Field(description="GPU-seconds for which its pods have held GPUs so far: the sum of `causes`")
    ] = 0.0
    gpu_seconds_used: Annotated[
        float, Field(description="of gpuSecondsHeld those in which a task of the pool's own ran: the cause `working`")
    ] = 0.0
    gpu_seconds_surplus: Annotated[
        float,
        Field(
            description="of gpuSecondsHeld those of pods that had ended by then, as was told later: so much is left out"
            " of what is counted next"
        ),
    ] = 0.0
    causes: Annotated[
        list[CauseSeconds],
        Field(default_factory=list, description="why its pods hold and held GPUs: each GPU-second has one cause"),
    ]
    owners: Annotated[
        list[OwnerSeconds],
        Field(default_factory=list, description="whose tasks ran in gpuSecondsUsed: at most 20 owners, and the others"),
    ]
    demand: Demand = Field(default_factory=Demand)
    start_seconds: Annotated[
        float, Field(description="what a new pod is taken to need until its workers are registered; 0 if unknown")
    ] = 0.0
    held_seconds: Annotated[
        float, Field(description="of startSeconds, the part in which it may hold a GPU, as while it pulls its image")
    ] = 0.0
    size_set_by: Annotated[
        str, Field(description="autoscale (and who overrode its limits), spec, suspend, or who overrode the size")
    ] = ""
    reason: Annotated[str, Field(description="why it has this size")] = ""
    message: Annotated[str, Field(description="what keeps it from progress, as Kubernetes reports it")] = ""
    fallback: Annotated[str, Field(description="the pools on which its tasks fall back now")] = ""
    held: Annotated[str, Field(description="what keeps idle pods: their results, actors, shuffles, of which type")] = ""
    leaving: Annotated[str, Field(description="pods that are retiring: since when, why, and what they wait for")] = ""
    replaced: Annotated[
        str, Field(description="the Dask name of the last pod that was replaced for its own sake, and why")
    ] = ""
    forced: Annotated[
        str, Field(description="the Dask name of the last pod that was deleted though not drained, and why")
    ] = ""
    frozen_since: Annotated[
        str,
        Field(
            description="since when its size cannot follow what is wanted, as 2026-12-01T18:00:00.000Z; empty where it"
            " can. Degraded says why"
        ),
    ] = ""
    last_scale_time: Annotated[str, Field(description="when desired last changed, as 2026-12-01T18:00:00.000Z")] = ""
    last_scale_reason: Annotated[str, Field(description="why it changed then")] = ""
    last_termination: Termination | None = None


class Summary(Model):
    """Sums for the printer columns, `ready/desired` in pods."""

    cpu: Annotated[str, Field(description="of the pools without GPUs")] = "0/0"
    gpu: Annotated[str, Field(description="of the pools with GPUs")] = "0/0"
    worked: Annotated[
        str,
        Field(description="the share of the GPU-seconds in which tasks ran, such as 63%; empty while there are none"),
    ] = ""


class SchedulerStatus(Model):
    """The scheduler: its pod, its addresses, and the process in it."""

    pod: Annotated[str, Field(description="its pod, empty while there is none")] = ""
    address: Annotated[str, Field(description="for clients inside the cluster")] = ""
    dashboard: Annotated[str, Field(description="the dashboard's URL inside the cluster")] = ""
    ready: Annotated[bool, Field(description="whether its pod is ready")] = False
    process: Annotated[str, Field(description="its process, by Dask's name for it: another one knows nothing")] = ""
    tasks: Annotated[int, Field(description="the tasks that it knows, those of held results included")] = 0
    lost: Annotated[
        str, Field(description="when a process that knew tasks last ended, and how many: their results are lost")
    ] = ""
    idle_since: Annotated[
        str,
        Field(
            description="since when it has had nothing to do, where spec.idle.deleteAfter counts that, as"
            " 2026-12-01T18:00:00.000Z"
        ),
    ] = ""
    disconnected_since: Annotated[
        str,
        Field(
            description="since when no client has been connected, as far as the operator saw it, where"
            " spec.idle.shutdownAfterDisconnect counts that, as idleSince"
        ),
    ] = ""


class Status(Model):
    """`status` of a GpuDaskCluster."""

    observed_generation: Annotated[int, Field(description="metadata.generation that all of this is about")] = 0
    phase: Annotated[str, Field(description=f"a summary for people: {', '.join(Phase)}")] = ""
    reason: Annotated[str, Field(description="why the phase is what it is")] = ""
    conditions: Annotated[
        list[Condition],
        Field(
            default_factory=list,
            description=f"one of each: {', '.join(ConditionType)}. `kubectl wait` and GitOps tools look at Ready",
        ),
    ]
    scheduler: SchedulerStatus = Field(default_factory=SchedulerStatus)
    summary: Summary = Field(default_factory=Summary)
    pools: Annotated[
        list[PoolStatus], Field(default_factory=list, description="each pool in the spec's order, then those removed")
    ]
    counted_at: Annotated[str, Field(description="up to when the GPU-seconds count, as 2026-12-01T18:00:00.000Z")] = ""
    machine_counted_at: Annotated[
        str,
        Field(
            description="the same by the clock of the operator's machine, for the operators after it: where one of the"
            " two clocks was set since, the other one tells how long ago it was; as countedAt"
        ),
    ] = ""
    pods_known_at: Annotated[
        str, Field(description="up to when who counted them had heard which pods come and go; as countedAt")
    ] = ""


def iso(now: float, *, to: str = "milliseconds") -> str:
    """A time in seconds since the epoch as RFC 3339 text in UTC; `to`: one of `datetime.isoformat`'s units."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec=to).replace("+00:00", "Z")


def epoch(text: str) -> float | None:
    """The seconds since the epoch of such a text; None where it is none: somebody else may have written the status."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
