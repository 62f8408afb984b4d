"""Which time is due, and what is done about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpudask.api import Json
from gpudask.api.cron_job import MAX_ACTIVE, CronJobConditionType, CronJobReason, parse_cron_job_status
from gpudask.api.job import UnreadableStatusError
from gpudask.api.status import iso
from gpudask.jobs.cron.observation import (
    CreateJob,
    CronJobPlan,
    DeleteJob,
    JobReader,
    Problem,
    SeenJob,
    job_name,
    seen_job,
)
from gpudask.jobs.cron.plan import MOST_DELETIONS, plan
from tests.jobs.cron.builders import NOON, cron_job, decided, job, seen, status

TEN = 600.0


def said(planned: CronJobPlan, kind: CronJobConditionType = CronJobConditionType.STARTING) -> str:
    """A condition in one line."""
    condition = planned.status.condition(kind)
    return f"{condition.status} {condition.reason}: {condition.message}" if condition is not None else ""


def test_a_job_has_the_name_of_its_minute():
    assert job_name("nightly", NOON) == f"nightly-{int(NOON) // 60}"
    assert job_name("nightly", NOON) == job_name("nightly", NOON + 59.0)


def test_a_time_that_comes_is_made_and_then_recorded():
    of = cron_job()
    planned = plan(seen(of))
    assert planned.actions == (CreateJob(NOON),)
    assert not planned.status.active
    planned = plan(seen(of, job(NOON), status=planned.status))
    assert planned.actions == ()
    assert [item.name for item in planned.status.active] == [job_name("nightly", NOON)]
    assert planned.status.last_schedule_time == planned.status.decided_time == iso(NOON, to="seconds")
    assert planned.status.next_schedule_time == iso(NOON + TEN, to="seconds")
    assert planned.requeue_after == TEN


def test_before_its_first_time_it_waits():
    planned = plan(seen(cron_job(), at=NOON - 30))
    assert (planned.actions, planned.requeue_after) == ((), 30.0)


def test_of_missed_times_only_the_newest_is_begun():
    at, of = NOON + 3 * TEN + 5, cron_job()
    known = decided(NOON)
    planned = plan(seen(of, at=at, status=known))
    assert planned.actions == (CreateJob(NOON + 3 * TEN),)
    planned = plan(seen(of, job(NOON + 3 * TEN), at=at, status=known))
    assert planned.status.missed == 2
    assert said(planned).startswith("True MissedSchedule: 2 times were before")


def test_more_than_a_hundred_missed_times_are_told():
    at = NOON + 200 * TEN
    planned = plan(seen(cron_job(), job(at), at=at, status=decided(NOON)))
    assert planned.status.missed == 101
    assert "TooManyMissedTimes: more than 100 times" in said(planned)


def test_a_time_beyond_its_deadline_is_passed_over_and_counted_once():
    of = cron_job(startingDeadline="1m")
    planned = plan(seen(of, at=NOON + 120, status=decided(NOON - TEN)))
    assert planned.actions == ()
    assert planned.status.missed == 1
    assert said(planned).startswith("False MissedSchedule: 1 time was up to")
    assert plan(seen(of, at=NOON + 121, status=planned.status)).status.missed == 1


@pytest.mark.parametrize(
    ("policy", "actions", "why"),
    [
        ("Allow", (CreateJob(NOON + TEN),), ""),
        ("Forbid", (), "False JobAlreadyActive"),
        ("Replace", (DeleteJob(job(NOON, begun=True)),), ""),
    ],
)
def test_what_becomes_of_a_time_while_a_job_runs(policy: str, actions: Any, why: str):
    before = job(NOON, begun=True)
    planned = plan(seen(cron_job(concurrencyPolicy=policy), before, at=NOON + TEN, status=decided(NOON, before)))
    assert planned.actions == actions
    assert said(planned).startswith(why)


def test_replaced_the_next_one_is_made_once_the_old_one_is_gone():
    of, before = cron_job(concurrencyPolicy="Replace"), job(NOON, begun=True)
    planned = plan(seen(of, at=NOON + TEN, status=decided(NOON, before)))
    assert planned.actions == (CreateJob(NOON + TEN),)
    assert not planned.status.active


def test_forbidden_it_is_begun_when_the_other_has_ended():
    of, before = cron_job(concurrencyPolicy="Forbid"), job(NOON, begun=True, ended_at=NOON + TEN + 60, succeeded=True)
    planned = plan(seen(of, before, at=NOON + TEN + 61, status=decided(NOON, before)))
    assert planned.actions == (CreateJob(NOON + TEN),)
    assert planned.status.last_successful_time == iso(NOON + TEN + 60, to="seconds")


def test_suspended_it_makes_nothing_and_resumed_the_newest_without_counting_the_others():
    of = cron_job(suspend=True)
    planned = plan(seen(of, at=NOON + 5 * TEN, status=decided(NOON)))
    assert (planned.actions, planned.status.next_schedule_time) == ((), "")
    resumed = plan(seen(cron_job(), job(NOON + 5 * TEN), at=NOON + 5 * TEN, status=planned.status))
    assert (resumed.status.missed, resumed.status.suspended, len(resumed.status.active)) == (0, False, 1)


@pytest.mark.parametrize("policy", ["Allow", "Forbid", "Replace"])
def test_suspended_between_the_creation_of_its_job_and_the_write_that_records_it_that_job_goes_on(policy: str):
    """`suspend`: those that are there go on. It waited for a record that never came, and was deleted a time later."""
    of = cron_job(suspend=True, concurrencyPolicy=policy)
    planned = plan(seen(of, job(NOON)))
    assert (planned.actions, [each.name for each in planned.status.active]) == ((), [job(NOON).name])
    recorded = plan(seen(of, job(NOON), status=planned.status))
    assert (recorded.actions, recorded.status.suspended, len(recorded.status.active)) == ((), True, 1)


@pytest.mark.parametrize("policy", ["Forbid", "Replace"])
def test_suspended_a_job_that_would_have_to_wait_is_not_begun_and_replaces_nobody(policy: str):
    """Somebody edited `concurrencyPolicy` in the same moment."""
    earlier = job(NOON - TEN, begun=True)
    of = cron_job(suspend=True, concurrencyPolicy=policy)
    planned = plan(seen(of, earlier, job(NOON, uid="new"), status=decided(NOON - TEN, earlier)))
    assert (planned.actions, planned.status.suspended) == ((), True)
    assert [each.uid for each in planned.status.active] == [earlier.uid]


def test_a_job_that_was_never_recorded_and_is_not_due_is_deleted():
    old, other = job(NOON - TEN), job(NOON, uid="other")
    planned = plan(seen(cron_job(), old, other, status=decided(NOON, job(NOON))))
    assert planned.actions == (DeleteJob(old), DeleteJob(other))


def test_without_a_status_the_time_of_a_job_that_began_is_decided():
    planned = plan(seen(cron_job(), job(NOON, begun=True), status=status()))
    assert planned.actions == ()
    assert not planned.status.active


def test_nobody_stops_it_by_a_job_of_the_year_3000():
    planned = plan(seen(cron_job(), job(NOON * 10, begun=True)))
    assert planned.actions == (CreateJob(NOON),)


def test_the_history_keeps_the_newest():
    good = [job(NOON - n * TEN, ended_at=NOON - n, succeeded=True) for n in range(1, 6)]
    bad = [job(NOON - n * TEN, ended_at=NOON - n) for n in range(11, 14)]
    planned = plan(seen(cron_job(), *good, *bad, status=decided(NOON)))
    assert {action.job for action in planned.actions if isinstance(action, DeleteJob)} == {*good[3:], *bad[1:]}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [({"schedule": "61 * * * *"}, "InvalidSchedule: spec.schedule"), ({"timeZone": "Moon"}, "UnknownTimeZone: spec")],
)
def test_a_schedule_without_meaning_is_a_condition_that_names_the_field(spec: dict[str, str], reason: str):
    planned = plan(seen(cron_job(**spec)))
    assert (planned.actions, planned.requeue_after) == ((), None)
    assert said(planned, CronJobConditionType.ACCEPTED).startswith(f"False {reason}")


def test_what_was_refused_is_tried_again_in_its_time():
    problem = Problem(CronJobReason.REFUSED, "no job can be made: exceeded quota", 5.0)
    planned = plan(seen(cron_job(), problem=problem))
    assert (planned.actions, planned.requeue_after) == ((), 5.0)
    assert "exceeded quota" in said(planned, CronJobConditionType.ACCEPTED)
    assert plan(seen(cron_job(), problem=replace(problem, wait_seconds=0.0))).actions == (CreateJob(NOON),)


def test_what_was_refused_is_told_until_its_time_is_not_due_any_more():
    """Else it would be until the next time, which may be a year away."""
    problem = Problem(CronJobReason.NAME_IN_USE, "a GpuDaskJob is there that is not this cron job's")
    tried = plan(seen(cron_job(), problem=problem))
    assert said(tried, CronJobConditionType.ACCEPTED).startswith("False JobNameInUse")
    over = plan(seen(cron_job(startingDeadline="1m"), at=NOON + 120, problem=problem))
    assert over.actions == ()
    assert said(over, CronJobConditionType.ACCEPTED).startswith("True Accepted")


def test_twice_it_says_the_same():
    before = job(NOON)
    planned = plan(seen(cron_job(), before))
    again = plan(seen(cron_job(), before, at=NOON + 1, status=planned.status))
    assert (again.actions, again.status) == ((), planned.status)


@pytest.mark.parametrize(
    "hostile", [{"active": "x"}, {"missed": -1}, [1], {"active": [{"name": 1}]}, {"decidedTime": "no time"}]
)
def test_a_status_that_does_not_say_what_was_begun_is_refused(hostile: Any):
    """Read as empty it would begin a time again whose job is gone."""
    with pytest.raises(UnreadableStatusError, match="status"):
        parse_cron_job_status({"status": hostile})


@pytest.mark.parametrize("none", [None, {}])
def test_a_cron_job_without_a_status_has_begun_nothing(none: Any):
    assert parse_cron_job_status({"status": none}) == status()


def test_a_job_whose_status_cannot_be_read_is_one_that_may_have_run_and_goes_on():
    body = {"metadata": {"name": job_name("nightly", NOON), "uid": "u"}, "status": {"attempts": "many"}}
    unreadable = seen_job(body, "nightly")
    assert (unreadable.begun, unreadable.ended_at) == (True, None)
    planned = plan(seen(cron_job(), unreadable, status=decided(NOON, unreadable)))
    assert planned.actions == ()
    assert [item.uid for item in planned.status.active] == ["u"]
    assert plan(seen(cron_job(), unreadable)).actions == ()  # nor is its time begun again


def test_nothing_that_can_only_be_refused_replaces_a_job_that_runs():
    of, running = cron_job(concurrencyPolicy="Replace"), job(NOON, begun=True)
    problem = Problem(CronJobReason.LIMIT, "too many GPUs", 60.0)
    at, known = NOON + TEN, decided(NOON, running)
    assert plan(seen(of, running, at=at, status=known)).actions == (DeleteJob(running),)
    assert plan(seen(of, running, at=at, status=known, problem=problem)).actions == ()


def many(amount: int, *, of: float = NOON, **more: Any) -> list[SeenJob]:
    """Jobs of so many times, of which this one is the newest."""
    return [job(of - n * TEN, begun=True, **more) for n in reversed(range(amount))]


def test_a_hundred_jobs_are_replaced_some_at_a_time_the_oldest_first_and_that_is_told():
    of, active = cron_job(concurrencyPolicy="Replace"), many(MAX_ACTIVE)
    planned = plan(seen(of, *active, at=NOON + TEN, status=decided(NOON, *active)))
    assert planned.actions == tuple(DeleteJob(each) for each in active[:MOST_DELETIONS])
    assert said(planned).startswith("False Replaced: 2026-11-27T12:10:00Z waits until 100 jobs are deleted")
    passes, status = 0, planned.status
    while active:
        planned = plan(seen(of, *active, at=NOON + TEN, status=status))
        gone = [action.job for action in planned.actions if isinstance(action, DeleteJob)]
        assert gone
        active, status, passes = [each for each in active if each not in gone], planned.status, passes + 1
    assert passes == MAX_ACTIVE // MOST_DELETIONS
    assert plan(seen(of, at=NOON + TEN, status=status)).actions == (CreateJob(NOON + TEN),)


def test_no_more_jobs_are_recorded_than_a_status_holds_where_replaced_ones_stay_for_a_finalizer():
    of, active = cron_job(concurrencyPolicy="Replace"), many(MAX_ACTIVE, deleting=True)
    planned = plan(seen(of, *active, job(NOON + TEN), at=NOON + TEN, status=decided(NOON, *active)))
    assert planned.actions == ()
    assert len(planned.status.active) == MAX_ACTIVE
    assert said(planned).startswith("False TooManyActive")


def test_a_time_that_is_due_does_not_wait_for_a_long_history():
    ended = many(5000, ended_at=NOON, succeeded=True)
    planned = plan(seen(cron_job(), *ended, at=NOON + TEN, status=decided(NOON)))
    assert planned.actions[0] == CreateJob(NOON + TEN)
    assert len(planned.actions) == 1 + MOST_DELETIONS


def test_each_version_of_a_job_is_read_once():
    reader, bodies = JobReader(), [written(number) for number in range(3)]
    before = reader.read(bodies, "nightly")
    bodies[1] = written(1, version="2", attempts=1)
    after = reader.read(bodies[:2], "nightly")
    assert after[0] is before[0]
    assert (before[1].begun, after[1].begun) == (False, True)
    assert reader.read(bodies, "nightly")[2] is not before[2], "what is gone is not remembered"


def written(number: int, *, version: str = "1", **status: Any) -> Json:
    """A job as the API server has it."""
    name = job_name("nightly", NOON + number * TEN)
    return {"metadata": {"name": name, "uid": f"uid-{number}", "resourceVersion": version}, "status": status}
