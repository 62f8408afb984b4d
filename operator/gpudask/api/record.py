"""`GpuDaskRecord`: what stays of a cluster after its pods are gone, and after it is gone itself. Its models and bounds.

It is written by the operator and read by people: nothing is decided on it. Whoever may edit the namespace may edit it,
so the operator goes on from it as from any hostile input (`history.record`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, Field

from gpudask.api.base import Model

MAX_RECORD_BYTES = 200_000  # of its JSON: etcd takes 1.5 MB, and keeps each version for some minutes
MAX_PODS, MAX_EVENTS, MAX_SAMPLES, MAX_PREFIXES, MAX_ERRORS = 100, 100, 500, 50, 20
MAX_POOLS, MAX_CAUSES, MAX_OWNERS = 64, 16, 21
MAX_LOG, MAX_TRACEBACK, MAX_MESSAGE, MAX_NAME = 4000, 4000, 400, 253
MAX_SECONDS, MAX_COUNT = 1e15, 10**15

_Time = Annotated[str, Field(max_length=40)]
_Name = Annotated[str, Field(max_length=MAX_NAME)]
_Message = Annotated[str, Field(max_length=MAX_MESSAGE)]
_Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
_Seconds = Annotated[float, Field(ge=0.0, le=MAX_SECONDS, allow_inf_nan=False)]


class End(StrEnum):
    """Why a pod ended, where it was not by itself; else the reason is the kubelet's, such as OOMKilled or Error."""

    DRAINED = "Drained"
    CANCELLED = "Cancelled"
    FORCED = "Forced"
    REPLACED = "Replaced"
    DELETED = "Deleted"
    EVICTED = "Evicted"
    PREEMPTED = "Preempted"
    NODE_LOST = "NodeLost"
    NODE_SHUTDOWN = "NodeShutdown"
    CLUSTER_DELETED = "ClusterDeleted"
    UNSEEN = "Unseen"


class Part(BaseModel):
    """Base of every part of a record: as the resource's, but without rules: a record has a thousand parts."""

    model_config = Model.model_config


class CauseSeconds(Part):
    """GPU-seconds of one cause."""

    cause: Annotated[str, Field(max_length=63, description="what the GPUs did, as in the cluster's status")]
    gpu_seconds: Annotated[_Seconds, Field(description="total, in GPU-seconds")] = 0.0


class OwnerSeconds(Part):
    """GPU-seconds that worked for one owner."""

    owner: Annotated[str, Field(max_length=63, description="of the tasks; empty: none was named, or the others")] = ""
    gpu_seconds: Annotated[_Seconds, Field(description="total, in GPU-seconds")] = 0.0


class RecordedCluster(Part):
    """The cluster."""

    name: Annotated[_Name, Field(description="its name")] = ""
    uid: Annotated[_Name, Field(description="its uid: another of its name is another cluster")] = ""
    created: Annotated[_Time, Field(description="when it was created")] = ""
    attribution: Annotated[
        dict[Annotated[str, Field(max_length=317)], Annotated[str, Field(max_length=63)]],
        Field(default_factory=dict, max_length=16, description="who pays: labels that the chart lists"),
    ]


class RecordedPool(Part):
    """A pool, with its share of the ledger."""

    name: Annotated[str, Field(max_length=63, description="its name")]
    gpus: Annotated[_Count, Field(description="GPUs of each pod")] = 0
    node_selector: Annotated[
        dict[Annotated[str, Field(max_length=317)], Annotated[str, Field(max_length=63)]],
        Field(default_factory=dict, max_length=16, description="the labels of its nodes"),
    ]
    causes: Annotated[
        list[CauseSeconds], Field(default_factory=list, max_length=MAX_CAUSES, description="its GPU-seconds by cause")
    ]
    owners: Annotated[
        list[OwnerSeconds],
        Field(default_factory=list, max_length=MAX_OWNERS, description="those that worked, by the tasks' owner"),
    ]
    causes_before: Annotated[
        list[CauseSeconds],
        Field(default_factory=list, max_length=MAX_CAUSES, description="of `causes`, those of earlier pools so named"),
    ]
    owners_before: Annotated[
        list[OwnerSeconds],
        Field(default_factory=list, max_length=MAX_OWNERS, description="of `owners`, those of earlier pools so named"),
    ]


class RecordedPod(Part):
    """A pod that ended, or a container that ended and was started again in its pod."""

    pod: Annotated[_Name, Field(description="its name")]
    uid: Annotated[_Name, Field(description="its uid")] = ""
    pool: Annotated[str, Field(max_length=63, description="its pool; empty: the scheduler")] = ""
    node: Annotated[_Name, Field(description="its node; empty: it never got one")] = ""
    created: Annotated[_Time, Field(description="when it was created")] = ""
    started: Annotated[_Time, Field(description="when its container started, if it did")] = ""
    ended: Annotated[_Time, Field(description="when it ended")] = ""
    restarted: Annotated[bool, Field(description="whether its container alone ended: the pod lived on")] = False
    reason: Annotated[
        str,
        Field(
            max_length=63,
            description=f"why: the kubelet's reason, such as OOMKilled or Error, or one of {', '.join(End)}",
        ),
    ] = ""
    message: Annotated[_Message, Field(description="more about why, and why there is no log where there is none")] = ""
    exit_code: Annotated[
        int | None, Field(ge=-(2**31), le=2**31, description="of its main process; absent: nobody told")
    ] = None
    log: Annotated[str, Field(max_length=MAX_LOG, description="the last lines that it wrote")] = ""
    gpu_seconds: Annotated[
        list[CauseSeconds],
        Field(default_factory=list, max_length=MAX_CAUSES, description="for how long it held its GPUs, by cause"),
    ]


class RecordedEvent(Part):
    """An event of the cluster, as the operator recorded it."""

    at: Annotated[_Time, Field(description="when it last happened")] = ""
    type: Annotated[str, Field(max_length=16, description="Normal or Warning")] = "Normal"
    reason: Annotated[str, Field(max_length=128, description="in one stable word")] = ""
    message: Annotated[_Message, Field(description="for people")] = ""


class PoolSample(Part):
    """One pool at one time."""

    name: Annotated[str, Field(max_length=63, description="the pool")]
    desired: Annotated[_Count, Field(description="pods that it should have")] = 0
    ready: Annotated[_Count, Field(description="pods whose workers are registered")] = 0
    waiting: Annotated[_Count, Field(description="tasks that wait")] = 0
    running: Annotated[_Count, Field(description="tasks that run")] = 0
    gpus_held: Annotated[_Count, Field(description="GPUs of pods that have a node")] = 0
    gpus_busy: Annotated[_Count, Field(description="GPUs of workers that have work")] = 0


class Sample(Part):
    """Sizes and demand at one time; they hold until the next sample."""

    at: Annotated[_Time, Field(description="when")] = ""
    pools: Annotated[list[PoolSample], Field(default_factory=list, max_length=MAX_POOLS, description="each pool")]


class PrefixTasks(Part):
    """The tasks of one prefix, as Dask names it after the function."""

    prefix: Annotated[_Name, Field(description="Dask's prefix of the keys")]
    tasks: Annotated[_Count, Field(description="how often a task of it gave a result")] = 0
    erred: Annotated[_Count, Field(description="how often one failed")] = 0
    seconds: Annotated[_Seconds, Field(description="how long they computed, in seconds")] = 0.0


class TaskError(Part):
    """A task that failed for good."""

    at: Annotated[_Time, Field(description="when")] = ""
    key: Annotated[_Name, Field(description="its key")] = ""
    exception: Annotated[_Message, Field(description="the exception")] = ""
    traceback: Annotated[str, Field(max_length=MAX_TRACEBACK, description="the end of its traceback")] = ""
    worker: Annotated[_Name, Field(description="the worker that ran it, by its Dask name or address")] = ""


class Record(Part):
    """What stays of a cluster. The whole object has 200 kB at most."""

    cluster: RecordedCluster = Field(default_factory=lambda: RecordedCluster.model_validate({}))
    began: Annotated[_Time, Field(description="when the record began")] = ""
    ended: Annotated[_Time, Field(description="when the cluster was deleted; empty: it is there")] = ""
    updated: Annotated[_Time, Field(description="when it was last written")] = ""
    unseen_gpus: Annotated[
        _Count,
        Field(
            description="GPUs of pods that outlived the cluster, and whose end is not told (yet): their GPU-seconds in"
            " `causes` are incomplete, or an estimate. Nothing is said of a cluster that ended unseen"
        ),
    ] = 0
    report: Annotated[_Message, Field(description="where the last performance report is, or why there is none")] = ""
    pools: Annotated[
        list[RecordedPool], Field(default_factory=list, max_length=MAX_POOLS, description="the pools and their ledger")
    ]
    pods: Annotated[
        list[RecordedPod], Field(default_factory=list, max_length=MAX_PODS, description="the last that ended")
    ]
    events: Annotated[
        list[RecordedEvent], Field(default_factory=list, max_length=MAX_EVENTS, description="the last events")
    ]
    samples: Annotated[
        list[Sample],
        Field(default_factory=list, max_length=MAX_SAMPLES, description="sizes and demand over time, thinned"),
    ]
    tasks: Annotated[
        list[PrefixTasks],
        Field(default_factory=list, max_length=MAX_PREFIXES, description="the prefixes with the most seconds"),
    ]
    errors: Annotated[
        list[TaskError], Field(default_factory=list, max_length=MAX_ERRORS, description="the last tasks that failed")
    ]
    process: Annotated[_Name, Field(description="the scheduler's process that `tasks` were last heard of")] = ""
    tasks_before: Annotated[
        list[PrefixTasks],
        Field(default_factory=list, max_length=MAX_PREFIXES, description="of `tasks`, those of earlier processes"),
    ]


def dumped(model: Part) -> Any:
    """A part of a record as JSON; what is not set is left out."""
    return model.model_dump(mode="json", by_alias=True, exclude_defaults=True)
