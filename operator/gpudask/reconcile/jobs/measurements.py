"""Measurements of one job's passes, for the metrics: its state, its attempts, and when its GPUs were given back."""

from __future__ import annotations

from gpudask.api.job import JobPhase, JobReason, JobStatus
from gpudask.api.resource import Identity, owner_key
from gpudask.api.status import epoch
from gpudask.jobs.actions import JobPlan
from gpudask.jobs.observation import JobObservation
from gpudask.jobs.plan import is_open
from gpudask.metrics.jobs import JobState
from gpudask.reconcile.context import Context

# In which nothing runs, and something should; but for the reasons that are meant.
_WAITS = frozenset({JobPhase.PENDING, JobPhase.RETRYING})
_MEANT = frozenset({JobReason.BACKING_OFF, JobReason.NOT_RECORDED})


class JobMeasurements:
    """Measures the passes of one job."""

    def __init__(self, context: Context, identity: Identity) -> None:
        self._context = context
        self._metrics = context.metrics
        self._key = identity.owner_key

    def known(self, status: JobStatus, *, is_readable: bool) -> None:
        """Export the job as it is known now."""
        if not is_readable:
            state = JobState(JobPhase.PENDING, JobReason.STATUS_UNREADABLE, self._context.clock())
        else:
            state = job_state(status, now=self._context.clock(), server_ahead=self._context.server_ahead())
        self._metrics.jobs.set_job(self._key, state)

    def stop(self) -> None:
        """Export the job no more."""
        self._metrics.jobs.forget_job(self._key)

    def planned(self, seen: JobObservation, planned: JobPlan) -> None:
        """Note what a runner that has ended leaves to be given back, before any of it is."""
        if seen.own is None or not is_open(seen.status) or is_open(planned.status):
            return
        pods = self._context.pods.owned(owner_key(seen.job.namespace, seen.own.uid))
        holding = (pod.uid for pod in pods if pod.gpus and pod.node and not pod.finished)
        self._metrics.jobs.runner_ended(holding, self._context.clock())

    def wrote(self, before: JobStatus, after: JobStatus) -> None:
        """Count what a status says that the one before did not."""
        if after.attempts > before.attempts:
            self._metrics.count_job_start(start(before))
        if is_open(before) and not is_open(after):
            self._metrics.count_job_attempt(outcome(before, after))
        if after.has_ended and not before.has_ended:
            self._metrics.count_job_end(after.reason)


def job_state(status: JobStatus, *, now: float, server_ahead: float) -> JobState:
    """What is exported of a job with this status. Of a first attempt the status says since when it waits."""
    phase = next((phase for phase in JobPhase if phase == status.phase), JobPhase.PENDING)
    reason = next((reason for reason in JobReason if reason == status.reason), None)
    if phase not in _WAITS or reason is None or reason in _MEANT:
        return JobState(phase)
    began = epoch(status.start_time) if status.attempts <= 1 and not status.failures else None
    return JobState(phase, reason, now if began is None else min(now, began - server_ahead))


def start(before: JobStatus) -> str:
    """Which of `families.JOB_STARTS` the attempt is that begins after this status."""
    if before.attempts == 0:
        return "first"
    return "resumed" if before.runner.reason == JobReason.SUSPENDED else "retry"


def outcome(before: JobStatus, after: JobStatus) -> str:
    """Which of `families.JOB_OUTCOMES` the attempt had that the first of these has open, and the second not."""
    runner = after.runner
    if runner.exit_code == 0:
        return "succeeded"
    if after.refusals > before.refusals:
        return "refused"
    stopped = {JobReason.RUNNER_LOST: "lost", JobReason.DEADLINE: "deadline", JobReason.SUSPENDED: "suspended"}
    return next((name for reason, name in stopped.items() if reason == runner.reason), "failed")
