"""What a plan asks for, and the plan."""

from __future__ import annotations

from dataclasses import dataclass

from gpudask.api.job import JobStatus
from gpudask.jobs.observation import SeenCluster
from gpudask.jobs.runner_pods import RunnerPod


@dataclass(frozen=True)
class CreateCluster:
    """Make the job's own cluster, for this attempt."""

    attempt: int


@dataclass(frozen=True)
class DeleteCluster:
    """Delete the job's own cluster, and its workers at once: what they hold is given back without a drain."""

    cluster: SeenCluster


@dataclass(frozen=True)
class EmptyCluster:
    """Keep the job's own cluster without workers: they end at once."""

    cluster: SeenCluster


@dataclass(frozen=True)
class CreateRunner:
    """Make the pod of this attempt, which waits at its gate."""

    attempt: int


@dataclass(frozen=True)
class LiftGate:
    """Let a pod run whose uid the status has."""

    pod: RunnerPod


@dataclass(frozen=True)
class DeleteRunner:
    """Delete a pod that runs no attempt of the job, or not any more."""

    pod: RunnerPod


@dataclass(frozen=True)
class GiveWay:
    """Delete a pod at its gate, for which there is no scheduler in sight, and make none for a while."""

    pod: RunnerPod


@dataclass(frozen=True)
class DeleteJob:
    """Delete the job, whose time after its end is over."""


@dataclass(frozen=True)
class EndContainers:
    """End what goes on in a pod whose program has ended. The pod stays, and its logs."""

    pod: RunnerPod


Action = (
    CreateCluster
    | DeleteCluster
    | EmptyCluster
    | CreateRunner
    | LiftGate
    | DeleteRunner
    | GiveWay
    | EndContainers
    | DeleteJob
)
Creation = CreateCluster | CreateRunner


@dataclass(frozen=True)
class JobPlan:
    """The actions, the status to write, and when to look again at the latest, in seconds; None: not by itself.

    `read_log_of`: the pod whose last lines belong into the status before it is written.
    """

    actions: tuple[Action, ...]
    status: JobStatus
    requeue_after: float | None = None
    read_log_of: RunnerPod | None = None
