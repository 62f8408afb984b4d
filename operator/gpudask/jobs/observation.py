"""The observation of a job: all that a plan is made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpudask.api.job import Job, JobReason, JobStatus
from gpudask.jobs.runner_pods import RunnerPod


@dataclass(frozen=True)
class SeenCluster:
    """A GpuDaskCluster as a job sees it.

    `is_own`: this very job controls it. `is_of_earlier`: one of its name did, which is gone. `attempt`: for which it
    was made, 0 where that cannot be read. `made_of`: the hash of the spec that it was made of. `scheduler_ready`: a
    program can connect. `waits_for`: why not, quoted. `lacks_room`: a quota refuses its scheduler. `workers`: its
    worker pods that are not being deleted. `is_empty`: its spec says that it has no workers.
    """

    name: str
    uid: str
    version: str
    is_own: bool
    attempt: int = 0
    deleting: bool = False
    made_of: str = ""
    scheduler_ready: bool = False
    is_invalid: bool = False
    waits_for: str = ""
    lacks_room: bool = False
    is_of_earlier: bool = False
    workers: int = 0
    is_empty: bool = False


@dataclass(frozen=True)
class Problem:
    """What keeps a job from going on. `is_final`: for ever, since its own spec is at fault.

    `wait_seconds`: until the next try of what was refused; 0.0 where it is due.
    """

    reason: JobReason
    message: str
    is_final: bool = False
    wait_seconds: float = 0.0


@dataclass(frozen=True)
class JobObservation:
    """A job at a moment.

    `status`: as the API server has it, with the version that the next write names. `pods`: all that the job controls.
    `named`: the GpuDaskCluster of the job's own name; `used`: the one that its program uses, which may be the same.
    `now`: the API server's time, seconds since the epoch. `never_ran`: uids of pods that are gone, and certainly never
    had a node. `wanted`: the hash of the spec that a cluster of its own is made of. `wanted_runner`: the hash of what a
    runner is made of. `problem`: of the last try. `gives_way_in`: seconds until the runner's pod, which waits at its
    gate for a scheduler that a quota refuses, makes room for others; None: it does not wait so.
    """

    job: Job
    status: JobStatus
    pods: tuple[RunnerPod, ...]
    named: SeenCluster | None
    used: SeenCluster | None
    now: float
    never_ran: frozenset[str] = field(default_factory=frozenset)
    wanted: str = ""
    wanted_runner: str = ""
    problem: Problem | None = None
    gives_way_in: float | None = None

    def pod(self, uid: str) -> RunnerPod | None:
        """The pod with this uid."""
        return next((pod for pod in self.pods if pod.uid == uid), None)

    @property
    def own(self) -> SeenCluster | None:
        """The cluster that this job made, whatever its spec says now."""
        return self.named if self.named is not None and self.named.is_own else None

    def own_fits(self, attempt: int) -> bool:
        """Whether the cluster that this job made is the one that its spec has now, for this attempt."""
        own = self.own
        is_current = own is not None and own.attempt == attempt and own.made_of == self.wanted
        return self.job.has_own_cluster and is_current
