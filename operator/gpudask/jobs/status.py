"""The status of a job: each step of it, made from the one before."""

from __future__ import annotations

from gpudask.api.job import (
    MAX_LAST_LINES_BYTES,
    JobCondition,
    JobConditionType,
    JobPhase,
    JobReason,
    JobStatus,
    RunnerStatus,
)
from gpudask.api.status import iso
from gpudask.api.untrusted_text import quote, quote_lines
from gpudask.jobs.observation import JobObservation
from gpudask.jobs.runner_pods import RunnerPod

LAST_LINES = 20
_MESSAGE_LENGTH = 1024


def waiting(status: JobStatus, seen: JobObservation, phase: JobPhase, reason: JobReason, message: str) -> JobStatus:
    """The job has not ended: its phase, and why."""
    suspended = _suspended(status, seen, is_so=phase == JobPhase.SUSPENDED)
    return _now(status, seen, phase=phase, reason=reason, message=message, conditions=suspended)


def opened(status: JobStatus, seen: JobObservation, pod: RunnerPod, attempt: int) -> JobStatus:
    """An attempt begins: from now on it is this pod's, and no other's."""
    runner = RunnerStatus(pod=pod.name, uid=pod.uid)
    begun = status.model_copy(update={"attempts": attempt, "runner": runner})
    phase = JobPhase.RETRYING if status.failures else JobPhase.PENDING
    return waiting(begun, seen, phase, JobReason.RUNNER_PENDING, f"{pod.name}: it starts")


def started(status: JobStatus, seen: JobObservation) -> JobStatus:
    """The program of the open attempt runs."""
    status = _with_runners_start(status, seen)
    return waiting(status, seen, JobPhase.RUNNING, JobReason.RUNNER_RUNNING, f"{status.runner.pod} runs")


def closed(
    seen: JobObservation, pod: RunnerPod | None, *, reason: str, counts: bool = False, refused: bool = False
) -> JobStatus:
    """The open attempt has ended, and the pod as it was then; None: it is gone, or is ended by the job.

    `counts`: as a failure. `refused`: its program never got to run.
    """
    status = seen.status
    if pod is not None and pod.exit_code is not None:
        status = _with_runners_start(status, seen)  # a short program may never have been seen to run
    changes = {
        "ended_at": iso(seen.now),
        "exit_code": pod.exit_code if pod is not None else None,
        "reason": quote(reason),
        "last_lines": last_lines(pod.message) if pod is not None else "",
    }
    runner = status.runner.model_copy(update=changes)
    failures, refusals = status.failures + (1 if counts else 0), status.refusals + 1 if refused else 0
    return status.model_copy(update={"runner": runner, "failures": failures, "refusals": refusals})


def ended(
    status: JobStatus, seen: JobObservation, kind: JobConditionType, reason: JobReason, message: str
) -> JobStatus:
    """The job has ended, for good."""
    phase = JobPhase.COMPLETE if kind == JobConditionType.COMPLETE else JobPhase.FAILED
    conditions = _with(_suspended(status, seen, is_so=False), seen, _condition(kind, "True", reason, message))
    status = status.model_copy(update={"completion_time": iso(seen.now)})
    return _now(status, seen, phase=phase, reason=reason, message=message, conditions=conditions)


def with_last_lines(status: JobStatus, log: str) -> JobStatus:
    """The status with the end of the runner's log."""
    if not (lines := last_lines(log)):
        return status
    return status.model_copy(update={"runner": status.runner.model_copy(update={"last_lines": lines})})


def last_lines(log: str) -> str:
    """The last lines of a log, at most 20, and 4 kB, without terminal sequences."""
    lines = "\n".join(quote_lines(log, MAX_LAST_LINES_BYTES).split("\n")[-LAST_LINES:])
    return lines.encode(errors="replace")[-MAX_LAST_LINES_BYTES:].decode(errors="ignore")


def _with_runners_start(status: JobStatus, seen: JobObservation) -> JobStatus:
    runner = status.runner.model_copy(update={"started_at": status.runner.started_at or iso(seen.now)})
    return status.model_copy(update={"runner": runner})


def _now(
    status: JobStatus,
    seen: JobObservation,
    *,
    phase: JobPhase,
    reason: JobReason,
    message: str,
    conditions: list[JobCondition],
) -> JobStatus:
    is_held = phase == JobPhase.SUSPENDED or reason == JobReason.NOT_RECORDED
    return status.model_copy(
        update={
            "observed_generation": seen.job.generation,
            "phase": str(phase),
            "reason": str(reason),
            "message": quote(message, _MESSAGE_LENGTH),
            "cluster": seen.job.cluster_name,
            "conditions": conditions,
            # As of a batch/v1 Job: its deadline does not go on while it is suspended, and begins anew afterwards. Nor
            # does that of a cron job's before it may begin: it would fail without a run, and its time be lost.
            "start_time": "" if is_held else status.start_time or iso(seen.now),
        }
    )


def _suspended(status: JobStatus, seen: JobObservation, *, is_so: bool) -> list[JobCondition]:
    """The conditions with that about suspension, which only a job has that was suspended once."""
    kind = JobConditionType.SUSPENDED
    if is_so:
        return _with(status.conditions, seen, _condition(kind, "True", JobReason.SUSPENDED, "spec.suspend is true"))
    if status.condition(kind) is None:
        return list(status.conditions)
    return _with(status.conditions, seen, _condition(kind, "False", JobReason.RESUMED, ""))


def _condition(kind: JobConditionType, holds: str, reason: JobReason, message: str) -> JobCondition:
    text = quote(message, _MESSAGE_LENGTH)
    made = {"type": str(kind), "status": holds, "reason": str(reason), "message": text}
    return JobCondition.model_validate(made)


def _with(conditions: list[JobCondition], seen: JobObservation, new: JobCondition) -> list[JobCondition]:
    """The conditions with this one; its time changes with its status alone."""
    before = next((item for item in conditions if item.type == new.type), None)
    at = before.last_transition_time if before is not None and before.status == new.status else ""
    made = new.model_copy(update={"last_transition_time": at or iso(seen.now, to="seconds")})
    return [*(item for item in conditions if item.type != new.type), made]
