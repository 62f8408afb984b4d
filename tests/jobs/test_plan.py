"""A job's steps: what is done and said at each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpudask.api.job import JobConditionType, JobPhase, JobReason, RunnerStatus
from gpudask.api.status import iso
from gpudask.jobs.actions import (
    CreateCluster,
    CreateRunner,
    DeleteCluster,
    DeleteJob,
    DeleteRunner,
    EmptyCluster,
    EndContainers,
    GiveWay,
    JobPlan,
    LiftGate,
)
from gpudask.jobs.observation import Problem, SeenCluster
from gpudask.jobs.plan import backoff_seconds, plan
from tests.jobs.builders import NOW, exited, job, not_begun, open_attempt, own_cluster, pod, running, seen, status

COMPLETE, FAILED, SUSPENDED = JobConditionType.COMPLETE, JobConditionType.FAILED, JobConditionType.SUSPENDED


def _said(planned: JobPlan) -> tuple[str, str]:
    return planned.status.phase, planned.status.reason


def test_first_its_runner_is_made_at_its_gate_and_then_its_cluster():
    """The other way round its workers may take the room of a ResourceQuota, and nobody would use them."""
    first = plan(seen(job()))
    assert first.actions == (CreateRunner(1),)
    assert _said(first) == ("Pending", "RunnerPending")
    second = plan(seen(job(), pod(gated=True)))
    assert second.actions == (CreateCluster(1),)
    assert _said(second) == ("Pending", "ClusterPending")


def test_while_its_runner_is_refused_a_job_holds_no_cluster():
    of = job()
    problem = Problem(JobReason.RUNNER_REFUSED, "exceeded quota", wait_seconds=7.0)
    waits = plan(seen(of, problem=problem))
    assert (waits.actions, waits.requeue_after, waits.status.message) == ((), 7.0, "exceeded quota")
    own = own_cluster(of)
    assert plan(seen(of, cluster=own, problem=problem)).actions == (DeleteCluster(own),)


def test_the_runner_waits_for_the_scheduler_and_not_for_the_workers():
    of, gated = job(), pod(gated=True)
    waits = plan(seen(of, gated, cluster=own_cluster(of, ready=False, waits_for="no node")))
    assert waits.actions == ()
    assert "no node" in waits.status.message
    assert waits.status.attempts == 0
    assert plan(seen(of, gated, cluster=own_cluster(of))).status.attempts == 1


def test_a_runner_whose_scheduler_finds_no_room_says_so_and_makes_room_in_the_end():
    of, gated = job(), pod(gated=True)
    own = own_cluster(of, ready=False, waits_for="exceeded quota: few", lacks_room=True)
    waits = plan(seen(of, gated, cluster=own, gives_way_in=40.0))
    assert (waits.actions, waits.requeue_after) == ((), 40.0)
    assert _said(waits) == ("Pending", "QuotaExceeded")
    assert "exceeded quota: few; sums-runner-1, which waits for that, takes room" in waits.status.message
    assert iso(NOW + 40, to="seconds") in waits.status.message
    late = plan(seen(of, gated, cluster=own, gives_way_in=0.0, status=waits.status))
    assert late.actions == (GiveWay(gated),)
    assert _said(late) == ("Pending", "GaveWay")
    assert late.status.attempts == 0


def test_after_it_made_room_the_cluster_goes_and_nothing_is_made_for_a_while():
    of, problem = job(), Problem(JobReason.GAVE_WAY, "made room", wait_seconds=30.0)
    own = own_cluster(of, ready=False, lacks_room=True)
    assert plan(seen(of, cluster=own, problem=problem)).actions == (DeleteCluster(own),)
    waits = plan(seen(of, problem=problem))
    assert (waits.actions, waits.requeue_after, waits.status.message) == ((), 30.0, "made room")
    again = plan(seen(of, problem=replace(problem, wait_seconds=0.0)))
    assert again.actions == (CreateRunner(1),)


def test_a_pod_that_somebody_let_run_makes_no_room():
    planned = plan(seen(job(), running(1), gives_way_in=0.0))
    assert (planned.actions, planned.status.attempts) == ((), 1)


@pytest.mark.parametrize("gives_way_in", [0.0, 40.0])
def test_the_deadline_holds_also_where_there_is_no_room(gives_way_in: float):
    of = job(activeDeadline="1m")
    own = own_cluster(of, ready=False, lacks_room=True)
    late = status(startTime=iso(NOW - 61))
    assert plan(seen(of, pod(gated=True), cluster=own, gives_way_in=gives_way_in, status=late)).status.holds(FAILED)


def test_a_runner_that_waits_for_its_cluster_is_made_anew_when_the_spec_is_edited():
    of, old = job(), pod(gated=True, made_of="an older template")
    planned = plan(seen(of, old, cluster=own_cluster(of)))
    assert planned.actions == (DeleteRunner(old),)
    assert planned.status.attempts == 0


def test_a_runner_that_is_being_deleted_at_its_gate_is_waited_for():
    planned = plan(seen(job(), pod(gated=True, deleting=True)))
    assert planned.actions == ()
    assert "is being deleted" in planned.status.message


def test_a_pod_runs_only_once_the_status_has_its_uid():
    of = job()
    gated = pod(gated=True)
    first = plan(seen(of, gated, cluster=own_cluster(of)))
    assert first.actions == ()
    assert (first.status.attempts, first.status.runner.uid) == (1, gated.uid)
    second = plan(seen(of, gated, cluster=own_cluster(of), status=first.status))
    assert second.actions == (LiftGate(gated),)


def test_a_pod_whose_gate_somebody_lifted_is_taken_on_whatever_became_of_its_cluster():
    planned = plan(seen(job(), running(1)))
    assert (planned.status.attempts, planned.status.runner.uid) == (1, "pod-1")


def test_a_pod_at_the_gate_is_no_runner_while_its_cluster_is_gone():
    planned = plan(seen(job(), pod(gated=True)))
    assert planned.actions == (CreateCluster(1),)
    assert planned.status.attempts == 0


def test_another_pod_at_the_gate_is_deleted():
    late = pod(1, uid="made-by-an-older-leader", gated=True)
    planned = plan(seen(job(retries=3), late, running(2), status=open_attempt(2)))
    assert planned.actions == (DeleteRunner(late),)


def test_it_runs():
    of = job()
    planned = plan(seen(of, running(), cluster=own_cluster(of), status=open_attempt()))
    assert planned.actions == ()
    assert _said(planned) == ("Running", "RunnerRunning")
    assert planned.status.runner.started_at == iso(NOW - 100)


def test_success_gives_everything_back_at_once():
    of = job()
    own, ended = own_cluster(of), exited(0)
    planned = plan(seen(of, ended, cluster=own, status=open_attempt()))
    assert planned.actions == (DeleteCluster(own),)
    assert planned.status.holds(COMPLETE)
    assert (planned.status.runner.exit_code, planned.status.completion_time) == (0, iso(NOW))
    assert planned.read_log_of == ended


def test_a_program_too_short_to_be_seen_began_all_the_same():
    status_ = status(attempts=1, runner={"pod": "sums-runner-1", "uid": "pod-1"})
    planned = plan(seen(job(), exited(0), status=status_))
    assert planned.status.runner.started_at == iso(NOW)


def test_the_last_lines_are_those_that_the_kubelet_has_until_the_log_is_read():
    planned = plan(seen(job(), exited(1, message="a\n\x1b[31mb\x1b[0m"), status=open_attempt()))
    assert planned.status.runner.last_lines == "a\nb"


def test_without_retries_a_failure_is_the_end():
    planned = plan(seen(job(), exited(3), status=open_attempt()))
    assert planned.status.holds(FAILED)
    assert _said(planned) == ("Failed", "RetriesSpent")
    assert "exited with code 3" in planned.status.message


def test_a_failure_is_tried_again_with_a_new_cluster_after_a_while():
    of = job(retries=1)
    own = own_cluster(of)
    planned = plan(seen(of, exited(3), cluster=own, status=open_attempt()))
    assert planned.actions == (DeleteCluster(own),)
    assert _said(planned) == ("Retrying", "BackingOff")
    assert planned.requeue_after == 10.0
    waits = plan(seen(of, exited(3), at=NOW + 4, status=planned.status))
    assert (waits.actions, waits.requeue_after) == ((), 6.0)
    assert plan(seen(of, exited(3), at=NOW + 10, status=planned.status)).actions == (CreateRunner(2),)


def test_the_cluster_of_an_earlier_attempt_is_not_used():
    of = job(retries=1)
    old = own_cluster(of, attempt=1)
    after = plan(seen(of, exited(3), status=open_attempt())).status
    planned = plan(seen(of, exited(3), cluster=old, at=NOW + 60, status=after))
    assert planned.actions == (DeleteCluster(old),)


def test_a_cluster_of_an_older_spec_is_not_used():
    of = job()
    old = replace(own_cluster(of), made_of="another")
    assert plan(seen(of, cluster=old)).actions == (DeleteCluster(old),)


def test_the_last_retry_is_the_end():
    planned = plan(seen(job(retries=1), exited(3, 2), status=open_attempt(2, failures=1)))
    assert _said(planned) == ("Failed", "RetriesSpent")
    assert (planned.status.attempts, planned.status.failures) == (2, 2)


def test_some_exit_codes_end_the_job_at_once():
    planned = plan(seen(job(retries=5, failExitCodes=[3]), exited(3), status=open_attempt()))
    assert _said(planned) == ("Failed", "FailExitCode")


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 10), (2, 20), (5, 160), (6, 300), (100, 300)])
def test_the_wait_doubles_up_to_five_minutes(attempts: int, seconds: float):
    assert backoff_seconds(10.0, attempts) == seconds


def test_a_longer_wait_than_five_minutes_is_as_written():
    assert backoff_seconds(600.0, 7) == 600.0


def test_a_clock_that_jumps_back_makes_no_wait_longer():
    of = job(retries=1)
    after = plan(seen(of, exited(3), status=open_attempt())).status
    assert plan(seen(of, exited(3), at=NOW - 9999, status=after)).requeue_after == 10.0


def test_a_runner_that_vanished_failed_if_it_may_have_run():
    planned = plan(seen(job(), status=open_attempt()))
    assert _said(planned) == ("Failed", "RetriesSpent")
    assert "is gone" in planned.status.message
    never = plan(seen(job(), status=not_begun(), never_ran=frozenset({"pod-1"})))
    assert _said(never) == ("Retrying", "BackingOff")
    assert (never.status.failures, never.status.refusals) == (0, 1)


REFUSED = {"node": "n", "ended": True, "finished": True, "reason": "OutOfcpu"}


def test_a_pod_that_its_node_refused_is_no_failure():
    planned = plan(seen(job(), pod(**REFUSED), status=not_begun()))
    assert (planned.status.failures, planned.status.refusals) == (0, 1)
    assert _said(planned) == ("Retrying", "BackingOff")


def test_a_pod_that_its_node_refused_after_it_had_run_has_failed():
    """A kubelet that was restarted refuses so what does not fit any more."""
    planned = plan(seen(job(), pod(**REFUSED), status=open_attempt()))
    assert (planned.status.failures, planned.status.refusals) == (1, 0)
    assert _said(planned) == ("Failed", "RetriesSpent")


def test_pods_that_nodes_refuse_are_replaced_ever_slower_whatever_the_backoff_and_not_for_ever():
    of, now = job(backoff="0s"), NOW
    known, waits = not_begun(), []
    while not known.has_ended:
        planned = plan(seen(of, pod(known.attempts, **REFUSED), at=now, status=known))
        waits.append(planned.requeue_after)
        next_runner = {"pod": "sums-runner-n", "uid": f"pod-{known.attempts + 1}"}
        known = planned.status
        if not known.has_ended:
            begun = {"attempts": known.attempts + 1, "runner": RunnerStatus.model_validate(next_runner)}
            known = known.model_copy(update=begun)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, None]
    assert (known.reason, known.failures) == ("NodesRefused", 0)
    assert "10 pods in a row never got to run" in known.message


def test_a_program_that_ran_forgives_earlier_refusals():
    known = open_attempt().model_copy(update={"refusals": 9})
    planned = plan(seen(job(retries=1), exited(1), status=known))
    assert (planned.status.failures, planned.status.refusals) == (1, 0)


def test_what_goes_on_beside_a_program_that_ended_is_ended_and_its_pod_stays():
    of, own = job(), own_cluster(job())
    beside = replace(exited(0), finished=False)
    planned = plan(seen(of, beside, cluster=own, status=open_attempt()))
    assert planned.actions == (DeleteCluster(own), EndContainers(beside))
    assert planned.status.holds(COMPLETE)
    after = plan(seen(of, replace(beside, stopping=True), at=NOW + 1, status=planned.status))
    assert after.actions == ()


def test_its_deadline_is_written_before_anything_is_ended():
    of = job(activeDeadline="1m")
    own = own_cluster(of)
    planned = plan(seen(of, running(), cluster=own, status=open_attempt()))
    assert planned.actions == ()
    assert _said(planned) == ("Failed", "DeadlineExceeded")
    after = plan(seen(of, running(), cluster=own, status=planned.status))
    assert after.actions == (DeleteRunner(running()), DeleteCluster(own))


def test_its_deadline_begins_with_the_job_and_bounds_one_whose_runner_never_comes():
    of = job(activeDeadline="1m")
    problem = Problem(JobReason.RUNNER_REFUSED, "exceeded quota", wait_seconds=100.0)
    first = plan(seen(of, problem=problem))
    assert first.status.start_time == iso(NOW)
    waits = plan(seen(of, problem=problem, at=NOW + 20, status=first.status))
    assert waits.requeue_after == 40.0
    over = plan(seen(of, problem=problem, at=NOW + 60, status=first.status))
    assert _said(over) == ("Failed", "DeadlineExceeded")


def test_a_suspended_job_has_no_deadline_and_a_new_one_once_it_goes_on():
    of = job(activeDeadline="1m")
    known = open_attempt(began=NOW - 30)
    suspended = plan(seen(job(activeDeadline="1m", suspend=True), running(), status=known)).status
    assert suspended.start_time == ""
    later = plan(seen(of, at=NOW + 9999, status=suspended))
    assert later.status.start_time == iso(NOW + 9999)
    assert later.actions == (CreateRunner(2),)


def test_its_deadline_wakes_it():
    planned = plan(seen(job(activeDeadline="2m"), running(), status=open_attempt()))
    assert planned.requeue_after == 20.0


def test_suspended_it_runs_nothing_and_the_end_of_the_runner_is_no_failure():
    of = job(suspend=True)
    own = own_cluster(of)
    planned = plan(seen(of, running(), cluster=own, status=open_attempt()))
    assert planned.actions == ()
    assert planned.status.holds(SUSPENDED)
    after = plan(seen(of, running(), cluster=own, status=planned.status))
    assert after.actions == (DeleteRunner(running()), DeleteCluster(own))
    assert after.status == planned.status, "nothing is written again"
    resumed = plan(seen(job(), status=after.status))
    assert resumed.actions == (CreateRunner(2),)
    assert resumed.status.failures == 0
    assert not resumed.status.holds(SUSPENDED)


def test_a_job_that_is_suspended_from_the_start_makes_nothing():
    planned = plan(seen(job(suspend=True)))
    assert planned.actions == ()
    assert planned.status.holds(SUSPENDED)


def test_kept_after_its_end_a_cluster_has_no_workers():
    of = job(keepCluster={"onFailure": "1h"})
    own = own_cluster(of, workers=2)
    planned = plan(seen(of, exited(3), cluster=own, status=open_attempt()))
    assert planned.actions == (EmptyCluster(own),)
    empty = replace(own, workers=0, is_empty=True)
    kept = plan(seen(of, exited(3), cluster=empty, at=NOW + 1, status=planned.status))
    assert (kept.actions, kept.requeue_after) == ((), 3599.0)
    over = plan(seen(of, exited(3), cluster=empty, at=NOW + 3600, status=planned.status))
    assert over.actions == (DeleteCluster(empty),)


def test_on_success_it_is_kept_for_another_time():
    of = job(keepCluster={"onFailure": "1h"})
    own = own_cluster(of)
    assert plan(seen(of, exited(0), cluster=own, status=open_attempt())).actions == (DeleteCluster(own),)


def test_a_cluster_that_comes_after_the_end_is_deleted():
    of = job()
    done = plan(seen(of, exited(0), status=open_attempt())).status
    late = own_cluster(of)
    assert plan(seen(of, exited(0), cluster=late, at=NOW + 9, status=done)).actions == (DeleteCluster(late),)


def test_the_job_is_deleted_when_its_time_is_over():
    of = job(ttlAfterFinished="1m")
    done = plan(seen(of, exited(0), status=open_attempt())).status
    assert plan(seen(of, exited(0), at=NOW + 50, status=done)).requeue_after == 10.0
    assert plan(seen(of, exited(0), at=NOW + 60, status=done)).actions == (DeleteJob(),)


def test_somebody_elses_cluster_is_never_touched():
    of = job()
    foreign = SeenCluster("sums", "c", "1", is_own=False, scheduler_ready=True)
    planned = plan(seen(of, cluster=foreign))
    assert (planned.actions, planned.status.reason) == ((), "ClusterNameInUse")
    assert plan(seen(of, exited(0), cluster=foreign, status=open_attempt())).actions == ()


@pytest.mark.parametrize("ending", [{"is_of_earlier": True}, {"deleting": True}])
def test_the_cluster_of_an_earlier_job_of_the_name_is_waited_for(ending: dict[str, Any]):
    earlier = SeenCluster("sums", "c", "1", is_own=False, scheduler_ready=True, **ending)
    planned = plan(seen(job(), cluster=earlier))
    assert (planned.actions, planned.status.reason) == ((), "ClusterEnding")


def test_a_cluster_that_is_there_is_used_and_left_as_it_is():
    of = job(cluster={"name": "demo"})
    assert _said(plan(seen(of))) == ("Pending", "ClusterMissing")
    shared = SeenCluster("demo", "c", "1", is_own=False, scheduler_ready=True)
    assert plan(seen(of, cluster=shared)).actions == (CreateRunner(1),)
    assert plan(seen(of, exited(0), cluster=shared, status=open_attempt())).actions == ()


def test_what_was_refused_waits_for_its_next_try_and_says_why():
    problem = Problem(JobReason.CLUSTER_REFUSED, "exceeded quota", wait_seconds=7.0)
    planned = plan(seen(job(), pod(gated=True), problem=problem))
    assert (planned.actions, planned.requeue_after) == ((), 7.0)
    assert (planned.status.phase, planned.status.message) == (JobPhase.PENDING, "exceeded quota")


def test_what_was_refused_is_told_no_more_where_the_next_step_is_another_by_now():
    """Its cluster is gone meanwhile: nobody tries to make the runner, and so nothing would ever end that refusal."""
    of, refused = job(cluster={"name": "demo"}), Problem(JobReason.RUNNER_PENDING, "the pod is being deleted")
    assert plan(seen(of, problem=refused)).status.reason == JobReason.CLUSTER_MISSING
    ready = SeenCluster("demo", "shared", "1", is_own=False, scheduler_ready=True)
    tried = plan(seen(of, problem=refused, cluster=ready))
    assert (tried.actions, tried.status.message) == ((CreateRunner(1),), "the pod is being deleted")


def test_a_template_that_nobody_can_make_a_pod_of_is_the_end():
    problem = Problem(JobReason.TEMPLATE_REFUSED, "spec.runner.template: no such field", is_final=True)
    planned = plan(seen(job(), problem=problem))
    assert _said(planned) == ("Failed", "TemplateRefused")


def test_a_job_that_is_being_deleted_is_left_alone():
    planned = plan(seen(replace(job(), deleting=True), running(), status=open_attempt()))
    assert planned.actions == ()
    assert planned.status == open_attempt()


def test_the_deadline_of_a_cron_jobs_job_begins_once_it_is_recorded():
    of = job(activeDeadline="1m")
    problem = Problem(JobReason.NOT_RECORDED, "its GpuDaskCronJob has not recorded it", wait_seconds=60.0)
    waits = plan(seen(of, problem=problem))
    assert (waits.status.reason, waits.status.start_time) == (JobReason.NOT_RECORDED, "")
    later = plan(seen(of, at=NOW + 3600.0, status=waits.status))
    assert not later.status.has_ended
    assert later.status.start_time == iso(NOW + 3600.0)
