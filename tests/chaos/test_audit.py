"""The rules of the audit, each by what breaks it and what does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from tests.chaos.audit import (
    Attempt,
    Hit,
    PoolSample,
    SchedulerSample,
    StatusSample,
    Verdict,
    of_attempt,
    of_gpu_seconds,
    of_log,
    of_retries,
    of_schedulers,
    report,
)

RIGHT = Attempt("a", "mixed", began=100.0, ended=130.0, expected=7, answer=7)
FAILED = replace(RIGHT, answer=None, error="FutureCancelledError: lost the connection")
HELD = PoolSample("uid", "a", "gpu", held=10.0, used=4.0)


def test_a_known_answer_is_no_finding():
    assert of_attempt(RIGHT, []) == Verdict()


def test_another_answer_is_wrong_even_where_its_scheduler_was_ended():
    found = of_attempt(replace(RIGHT, answer=8), [Hit("a", 110.0)])
    assert found.wrong == ("mixed on a, 30 s: 8, not 7",)


def test_a_failure_is_lost_where_no_fault_ended_its_scheduler():
    assert of_attempt(FAILED, []).lost
    assert of_attempt(FAILED, [Hit("another", 110.0)]).lost


@pytest.mark.parametrize(("at", "is_excused"), [(85.0, False), (95.0, True), (130.0, True), (131.0, False)])
def test_a_failure_is_run_again_where_a_fault_ended_its_scheduler_just_before_or_meanwhile(at: float, is_excused: bool):
    found = of_attempt(FAILED, [Hit("a", at)])
    assert (bool(found.again), bool(found.lost)) == (is_excused, not is_excused)


def test_a_deleted_scheduler_may_end_later():
    assert of_attempt(FAILED, [Hit("a", 50.0, seconds=60.0)]).again
    assert of_attempt(FAILED, [Hit("a", 10.0, seconds=60.0)]).lost


def test_a_program_without_an_end_is_stuck_even_where_its_scheduler_was_ended():
    assert of_attempt(replace(RIGHT, answer=None), [Hit("a", 110.0)]).stuck


def test_a_scheduler_that_is_another_one_without_a_fault_is_lost():
    seen = [SchedulerSample("a", "one", 1.0), SchedulerSample("b", "two", 2.0), SchedulerSample("a", "three", 300.0)]
    assert len(of_schedulers(seen, []).lost) == 1
    assert of_schedulers(seen, [Hit("a", 200.0)]) == Verdict()
    assert of_schedulers(seen[:2], []) == Verdict()


def test_each_end_excuses_one_other_scheduler_however_late_that_is_seen():
    seen = [SchedulerSample("a", "one", 1.0), SchedulerSample("a", "one", 180.0), SchedulerSample("a", "two", 200.0)]
    assert of_schedulers(seen, [Hit("a", 130.0)]) == Verdict()
    assert of_schedulers([*seen, SchedulerSample("a", "three", 201.0)], [Hit("a", 130.0)]).lost
    assert of_schedulers(seen, [Hit("a", 300.0)]).lost


def test_gpu_seconds_that_go_back_are_wrong():
    assert len(of_gpu_seconds([HELD, replace(HELD, held=9.0)]).wrong) == 1
    assert len(of_gpu_seconds([HELD, replace(HELD, used=3.0)]).wrong) == 1


def test_gpu_seconds_that_grow_or_belong_to_another_cluster_are_no_finding():
    seen = [HELD, replace(HELD, held=11.0), replace(HELD, uid="another", held=0.0), replace(HELD, pool="cpu", held=0.0)]
    assert of_gpu_seconds(seen) == Verdict()


@pytest.mark.parametrize(("seconds", "is_stuck"), [(-5, False), (30, False), (88, True), (3600, False)])
def test_a_cluster_that_is_not_tried_again_when_its_status_told_is_stuck(seconds: float, is_stuck: bool):
    told = datetime.fromisoformat("2026-11-23T23:35:18Z").timestamp()
    text = '{"message": "exceeded quota, next try at 2026-11-23T23:35:18Z"}'
    seen = [StatusSample("uid", "a", text, told + seconds - ago) for ago in (2, 1, 0)]
    found = of_retries(seen)
    assert len(found.stuck) == is_stuck
    assert found.is_clean != is_stuck


@pytest.mark.parametrize(
    ("unattended", "is_stuck"),
    [
        ([], True),
        ([(100.0, 112.0), (113.0, 121.0), (120.0, 160.0)], False),
        ([(100.0, 112.0), (105.0, 110.0)], False),
        ([(20.0, 99.0), (170.0, 200.0)], True),
        ([(95.0, 105.0)], True),
    ],
)
def test_nobody_can_try_again_while_there_is_no_operator(unattended: list[tuple[float, float]], is_stuck: bool):
    seen = [StatusSample("uid", "a", "next try at 1970-01-01T00:01:40Z", 170.0)]
    assert bool(of_retries(seen, unattended).stuck) == is_stuck


def test_a_defect_in_the_log_is_wrong_once_for_each_kind():
    lines = ["all is well", "cluster 1: a defect", "cluster 2: a defect", "Traceback (most recent call last):"]
    assert len(of_log(lines).wrong) == 2


def test_the_last_line_counts_what_was_found():
    found = Verdict(wrong=("a",), lost=("b", "c"), leaked=("d",))
    assert not found.is_clean
    line = "chaos: minutes=5 faults=30 programs=12 wrong=1 lost=2 stuck=0 leaked_pods=1 ledger_gap=0.25%"
    assert report(5, 30, 12, found, 0.0025) == line
    assert Verdict(again=("e",)).is_clean
