"""The plan of a cron job: which time is due, and one step towards its job.

A time is due if it is the newest one that has come, and is not decided. Times are decided in order, by writes of the
status, each in the version that was read:

    a job of time t may run    => status.active has its uid, since t was decided
    t is decided               => no other job of t, or of a time before it, is recorded any more
    a job is not in the status => it has not begun: where its time is not due any more, it is deleted

A job is made under the name of its time, waits until it is recorded, and only then does the job's own loop begin it. So
nothing runs twice: not where an answer is lost (409, and it is the one that is there), not where the job is deleted
between two writes (another one is made, and the first never ran), and not where two operators write. And no time is
lost: until it is recorded it is due.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudask.api.cron_job import (
    MAX_ACTIVE,
    ActiveJob,
    ConcurrencyPolicy,
    CronJobCondition,
    CronJobConditionType,
    CronJobReason,
    CronJobStatus,
)
from gpudask.api.status import epoch, iso
from gpudask.api.untrusted_text import quote
from gpudask.jobs.cron.observation import (
    Action,
    CreateJob,
    CronJobObservation,
    CronJobPlan,
    DeleteJob,
    SeenJob,
    job_name,
)
from gpudask.jobs.cron.schedule import MOST_MISSED, Schedule, ScheduleError, parse_schedule

# Of a pass: where a hundred jobs are replaced, or somebody made thousands, it still comes to what is due.
MOST_DELETIONS = 20
_MESSAGE_LENGTH = 1024
_Told = tuple[bool, CronJobReason, str]  # of a condition: whether it holds, why, and the same for people


def plan(seen: CronJobObservation) -> CronJobPlan:
    """The next step."""
    if seen.cron_job.deleting:  # its jobs go with it
        return CronJobPlan((), seen.status)
    status = _with_ends(seen)
    history = tuple(_history(seen))
    spec = seen.cron_job.spec
    try:
        schedule = parse_schedule(spec.schedule, spec.time_zone)
    except ScheduleError as error:
        reason = CronJobReason.TIME_ZONE if error.is_zone else CronJobReason.SCHEDULE
        status = status.model_copy(update={"next_schedule_time": ""})
        return CronJobPlan(
            _bounded(history),
            with_condition(status, seen.now, CronJobConditionType.ACCEPTED, (False, reason, str(error))),
        )
    following = schedule.after(seen.now)
    upcoming = _text(following) if following is not None and not spec.suspend else ""
    status = status.model_copy(update={"next_schedule_time": upcoming})
    due, status = _due(seen, schedule, status)
    is_tried = any(isinstance(action, CreateJob) for action in due)
    status = with_condition(status, seen.now, CronJobConditionType.ACCEPTED, _accepted(seen, is_tried=is_tried))
    wait = None if following is None else max(0.0, following - seen.now)
    waits = [each for each in (wait, seen.problem.wait_seconds if seen.problem is not None else None) if each]
    return CronJobPlan(_bounded((*due, *history)), status, min(waits, default=None))


def _bounded(actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """The actions of one pass: of deletions the first ones, so that it ends soon. Each of them brings another pass."""
    kept: list[Action] = []
    deletions = 0
    for action in actions:
        deletions += isinstance(action, DeleteJob)
        if deletions <= MOST_DELETIONS or not isinstance(action, DeleteJob):
            kept.append(action)
    return tuple(kept)


def decided_until(seen: CronJobObservation) -> float:
    """Up to when all times are decided. Whatever the status says, the time of a job that began is."""
    known = epoch(seen.status.decided_time)
    begun = (job.time for job in seen.jobs if job.begun or job.ended_at is not None)
    began = [time for time in begun if time is not None and time <= seen.now]
    return max(seen.cron_job.created if known is None else known, *began, 0.0)


def _due(
    seen: CronJobObservation, schedule: Schedule, status: CronJobStatus
) -> tuple[tuple[Action, ...], CronJobStatus]:
    """The step towards the job of the time that is due, if one is."""
    spec, decided = seen.cron_job.spec, decided_until(seen)
    deadline = spec.deadline_seconds
    since = decided if deadline is None else max(decided, seen.now - deadline - 1.0)
    time = schedule.newest(since, seen.now)
    strays = tuple(_strays(seen, decided, time))
    name = "" if time is None else job_name(seen.cron_job.name, time)
    job = next((job for job in seen.jobs if job.name == name), None)
    is_there = job is not None and not job.deleting
    waits = _waits(status, seen, time) if time is not None else None
    if spec.suspend and (not is_there or waits is not None):  # one that is there goes on
        text = (True, CronJobReason.SUSPENDED, "spec.suspend is true: no jobs are made")
        status = status.model_copy(update={"suspended": True})
        return strays, with_condition(status, seen.now, CronJobConditionType.STARTING, text)
    if time is None:
        return strays, _passed_over(seen, schedule, status, decided)
    if waits is not None:
        replaced, told = waits
        return (*strays, *replaced), with_condition(status, seen.now, CronJobConditionType.STARTING, told)
    if job is not None and not job.deleting:
        passed = 0 if status.suspended else schedule.count(decided, time)
        return strays, _begun(seen, status, job, time, passed)
    return (strays if job is not None or _is_refused(seen) else (*strays, CreateJob(time))), status


def _waits(status: CronJobStatus, seen: CronJobObservation, time: float) -> tuple[tuple[DeleteJob, ...], _Told] | None:
    """Why the job of a time that is due may not begin yet, and whom it replaces."""
    policy, at = seen.cron_job.spec.concurrency_policy, _text(time)
    if policy == ConcurrencyPolicy.REPLACE and (replaced := _replaced(status, seen)):
        if seen.problem is not None and _is_refused(seen):  # nothing would come in their place
            return (), (False, seen.problem.reason, seen.problem.message)
        amount = "1 job is" if len(replaced) == 1 else f"{len(replaced)} jobs are"
        text = f"{at} waits until {amount} deleted: spec.concurrencyPolicy is Replace"
        return replaced, (False, CronJobReason.REPLACED, text)
    if status.active and policy == ConcurrencyPolicy.FORBID:
        text = f"{at} waits until {status.active[0].name} has ended: spec.concurrencyPolicy is Forbid"
        return (), (False, CronJobReason.WAITS, text)
    if len(status.active) >= MAX_ACTIVE:
        text = f"{at} waits: {len(status.active)} jobs have not ended, and more are not begun at once"
        return (), (False, CronJobReason.TOO_MANY, text)
    return None


def _replaced(status: CronJobStatus, seen: CronJobObservation) -> tuple[DeleteJob, ...]:
    """The deletion of jobs that have not ended, the oldest first; of those that are being deleted no more."""
    there = {job.uid: job for job in seen.jobs}
    active = [there[item.uid] for item in status.active if item.uid in there]
    return tuple(DeleteJob(job) for job in active if not job.deleting)


def _is_refused(seen: CronJobObservation) -> bool:
    """Whether no job can be made for now."""
    return seen.problem is not None and seen.problem.wait_seconds > 0


def _begun(seen: CronJobObservation, status: CronJobStatus, job: SeenJob, time: float, passed: int) -> CronJobStatus:
    """The job of a time may run from now on, and this time and all before it, `passed` of them, are decided."""
    active = [*status.active, ActiveJob(name=job.name, uid=job.uid, scheduled_time=_text(time))]
    begun = status.model_copy(
        update={
            "active": active,
            "active_jobs": len(active),
            "last_schedule_time": _text(time),
            "decided_time": _text(time),
            "missed": status.missed + passed,
            "suspended": seen.cron_job.spec.suspend,
        }
    )
    told: _Told = (True, CronJobReason.ON_TIME, "")
    if passed:
        told = (True, _missed(passed), f"{_amount(passed)} before {_text(time)} passed over: only the newest is begun")
    return with_condition(begun, seen.now, CronJobConditionType.STARTING, told)


def _passed_over(seen: CronJobObservation, schedule: Schedule, status: CronJobStatus, decided: float) -> CronJobStatus:
    """No time is due. Those whose deadline is over are decided, too."""
    deadline = seen.cron_job.spec.deadline_seconds
    last = schedule.newest(decided, seen.now - deadline - 1.0) if deadline is not None else None
    if last is None:
        return status if not status.suspended else status.model_copy(update={"suspended": False})
    passed = 0 if status.suspended else schedule.count(decided, last) + 1
    update = {"decided_time": _text(last), "missed": status.missed + passed, "suspended": False}
    status = status.model_copy(update=update)
    if not passed:
        return status
    why = f": {seen.problem.message}" if seen.problem is not None else ""
    text = f"{_amount(passed)} up to {_text(last)} passed over, since spec.startingDeadline was over{why}"
    return with_condition(status, seen.now, CronJobConditionType.STARTING, (False, _missed(passed), text))


def _missed(passed: int) -> CronJobReason:
    return CronJobReason.TOO_MANY_MISSED if passed > MOST_MISSED else CronJobReason.MISSED


def _amount(passed: int) -> str:
    if passed > MOST_MISSED:
        return f"more than {MOST_MISSED} times (is the operator's clock right, or spec.startingDeadline too long?) were"
    return "1 time was" if passed == 1 else f"{passed} times were"


def _accepted(seen: CronJobObservation, *, is_tried: bool) -> _Told:
    """What was refused is told until it is made, or until its time is not due any more."""
    if seen.problem is not None and (is_tried or _is_refused(seen)):
        return False, seen.problem.reason, seen.problem.message
    return True, CronJobReason.ACCEPTED, ""


# Jobs that are there.


def _with_ends(seen: CronJobObservation) -> CronJobStatus:
    """The status without the jobs that have ended, or are gone; and the last success."""
    status, there = seen.status, {job.uid: job for job in seen.jobs}
    active = [item for item in status.active if item.uid in there and there[item.uid].ended_at is None]
    succeeded = [job.ended_at for job in seen.jobs if job.succeeded and job.ended_at is not None]
    last = max([*succeeded, epoch(status.last_successful_time) or 0.0])
    return status.model_copy(
        update={
            "observed_generation": seen.cron_job.generation,
            "active": active,
            "active_jobs": len(active),
            "last_successful_time": _text(last) if last else "",
        }
    )


def _strays(seen: CronJobObservation, decided: float, due: float | None) -> Iterator[Action]:
    """The deletion of jobs that were never recorded, and whose time is not due any more. They have not begun."""
    active = {item.uid for item in seen.status.active}
    for job in seen.jobs:
        is_idle = not job.begun and job.ended_at is None and not job.deleting
        if job.time is None or not is_idle or job.uid in active:
            continue
        if job.time <= decided or job.time != due:
            yield DeleteJob(job)


def _history(seen: CronJobObservation) -> Iterator[Action]:
    """The deletion of the oldest jobs that ended, beyond the limits of the history."""
    spec, active = seen.cron_job.spec, {item.uid for item in seen.status.active}
    for succeeded, most in ((True, spec.successful_jobs_history_limit), (False, spec.failed_jobs_history_limit)):
        ended = [job for job in seen.jobs if job.ended_at is not None and job.succeeded == succeeded]
        ended.sort(key=lambda job: (job.ended_at or 0.0, job.name), reverse=True)
        yield from (DeleteJob(job) for job in ended[most:] if not job.deleting and job.uid not in active)


def with_condition(
    status: CronJobStatus, now: float, kind: CronJobConditionType, told: tuple[bool, CronJobReason, str]
) -> CronJobStatus:
    """The status with this condition: whether it holds, why, and the same for people.

    Its time, seconds since the epoch, changes with its status alone.
    """
    holds, reason, message = told
    before = status.condition(kind)
    value = "True" if holds else "False"
    at = before.last_transition_time if before is not None and before.status == value else ""
    made = CronJobCondition.model_validate(
        {
            "type": str(kind),
            "status": value,
            "reason": str(reason),
            "message": quote(message, _MESSAGE_LENGTH),
            "lastTransitionTime": at or _text(now),
        }
    )
    others = [item for item in status.conditions if item.type != kind]
    return status.model_copy(update={"conditions": sorted([*others, made], key=lambda item: item.type)})


def _text(time: float) -> str:
    return iso(time, to="seconds")
