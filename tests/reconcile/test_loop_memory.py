"""Back-off of a loop: by pool, twice as long each time, forgotten after a while or an edit."""

from __future__ import annotations

import random

import pytest

from gpudask.api.reasons import Reason
from gpudask.clients.errors import ApiError
from gpudask.planning.pool_view import Start
from gpudask.reconcile.loop_memory import Memory

QUOTA = ApiError(403, "Forbidden", "exceeded quota: q", "POST")
POLICY = ApiError(403, "Forbidden", "violates PodSecurity", "POST")
TYPO = ApiError(400, "BadRequest", 'unknown field "x"', "POST")

WEBHOOK = ApiError(400, "BadRequest", 'admission webhook "gpus.example" denied the request: no', "POST")
BUSY = ApiError(429, "TooManyRequests", "please try again", "POST", retry_after_seconds=30.0)


def start(at: float, seconds: float, held_seconds: float) -> Start:
    return Start(at, seconds, held_seconds, "any")


def test_each_failure_waits_twice_as_long_up_to_five_minutes():
    memory, now, waits = Memory(), 1000.0, []
    for _ in range(11):
        memory.record_failure("gpu", now)
        waits.append(memory.of("gpu").not_before - now)
        now = memory.of("gpu").not_before
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert memory.of("cpu").not_before == 0


def test_it_says_when_the_first_pool_that_waits_is_tried_again():
    memory, now = Memory(), 1000.0
    assert memory.requeue_after(now) is None

    memory.record_refusal("gpu", QUOTA, now)
    memory.record_failure("cpu", now)
    memory.record_failure("cpu", now + 1)
    assert memory.requeue_after(now) == 1
    assert memory.requeue_after(now + 1) == 2
    assert memory.requeue_after(now + 3) is None


def test_a_scheduler_that_a_quota_refuses_is_tried_soon_after_each_pod_that_is_gone():
    memory, now = Memory(), 1000.0
    memory.record_gone(now)
    assert memory.of("").room_at == 0.0, "nothing is refused"
    for _ in range(6):
        memory.record_refusal("", QUOTA, now)
        now = memory.of("").not_before
    memory.record_refusal("", QUOTA, now)
    memory.record_gone(now + 3.0)
    memory.record_gone(now + 3.5)
    assert memory.of("").not_before == now + 4.0, "many that go do not put it off"
    assert memory.of("").room_at == now + 3.5
    memory.record_refusal("", QUOTA, now + 4.0)
    assert memory.of("").not_before == now + 5.0, "it waits ever longer from the beginning"


def test_a_pod_that_is_gone_is_no_news_for_a_policy():
    memory, now = Memory(), 1000.0
    for _ in range(3):
        memory.record_refusal("", POLICY, now)
        now = memory.of("").not_before
    memory.record_gone(now - 2.0)
    assert (memory.of("").not_before, memory.of("").room_at) == (now, 0.0)


def test_many_pods_that_end_at_once_are_one_failure():
    memory = Memory()
    for pod in range(20):
        memory.record_failure("gpu", 1000 + pod * 0.01)
    assert memory.of("gpu").not_before == 1001


def test_a_failure_long_ago_is_forgiven():
    memory = Memory()
    for now in (0.0, 1.0, 2.0, 1000.0):
        memory.record_failure("gpu", now)
    assert memory.of("gpu").not_before == 1001


@pytest.mark.parametrize(
    ("error", "reason", "waits"),
    [
        (QUOTA, Reason.QUOTA, 1),
        (POLICY, Reason.FORBIDDEN, 1),
        (TYPO, Reason.TEMPLATE_REFUSED, 1),
        (WEBHOOK, Reason.FORBIDDEN, 1),
        (BUSY, Reason.API_FAILED, 33.75),
    ],
)
def test_a_refusal_keeps_the_words_and_waits(error: ApiError, reason: Reason, waits: float):
    memory = Memory()
    memory.record_refusal("gpu", error, 50)
    found = memory.of("gpu")
    assert (found.refusal, found.refusal_reason, found.not_before) == (error.message, reason, 50 + waits)


@pytest.mark.parametrize("error", [QUOTA, POLICY, TYPO, WEBHOOK])
def test_what_somebody_else_can_mend_is_tried_again_within_minutes_for_ever(error: ApiError):
    memory, now = Memory(), 1000.0
    for _ in range(50):
        memory.record_refusal("gpu", error, now)
        assert now < memory.of("gpu").not_before <= now + 300
        assert memory.of("gpu").refused_since == 1000.0
        now = memory.of("gpu").not_before


def test_a_quota_is_asked_again_within_half_a_minute_however_long_it_has_refused():
    memory, now, waits = Memory(), 1000.0, []
    for _ in range(8):
        memory.record_refusal("gpu", QUOTA, now)
        waits.append(memory.of("gpu").not_before - now)
        now = memory.of("gpu").not_before
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]


@pytest.mark.parametrize("error", [QUOTA, POLICY])
def test_a_refusal_after_a_success_is_the_first_again(error: ApiError):
    memory, now = Memory(), 1000.0
    for _ in range(6):
        memory.record_refusal("gpu", error, now)
        now = memory.of("gpu").not_before
    memory.record_creation("gpu")
    memory.record_refusal("gpu", error, now + 5)
    assert memory.of("gpu").not_before == now + 6


def test_pods_that_fail_again_and_again_are_not_forgiven_because_each_could_be_created():
    memory, now = Memory(), 1000.0
    for _ in range(5):
        memory.record_refusal("gpu", QUOTA, now)
        memory.record_creation("gpu")
        memory.record_failure("gpu", now + 1)
        now += 60
    assert memory.of("gpu").not_before == now - 60 + 1 + 16


def test_pools_that_failed_together_are_not_tried_again_together():
    memory = Memory(random.Random(1).random)  # noqa: S311
    for pool in range(100):
        memory.record_failure(str(pool), 1000.0)
    moments = sorted(memory.of(str(pool)).not_before for pool in range(100))
    assert 1000.75 <= moments[0] < 1000.8
    assert 1001.2 < moments[-1] <= 1001.25


def test_a_creation_or_an_edit_ends_a_refusal_and_an_edit_keeps_the_size():
    memory = Memory()
    memory.record_size("gpu", 3)
    memory.record_refusal("gpu", TYPO, 50)
    memory.record_creation("gpu")
    assert (memory.of("gpu").refusal, memory.of("gpu").not_before) == ("", 0)
    memory.record_refusal("gpu", TYPO, 50)
    memory.record_foreign_name("gpu", "demo-gpu-worker-0")
    memory.forget_refusals()
    assert (memory.of("gpu").refusal, memory.of("gpu").taken, memory.of("gpu").size) == ("", frozenset(), 3)


def test_the_times_of_starts_are_kept_over_an_edit_and_while_no_pod_is_there():
    memory = Memory()
    memory.record_starts("gpu", [start(100.0, 90.0, 80.0)], empty=False)
    memory.record_starts("gpu", [start(100.0, 90.0, 80.0), start(110.0, 8.0, 7.0)], empty=False)
    memory.record_starts("gpu", [], empty=True)
    memory.forget_refusals()
    assert (memory.of("gpu").start_seconds, memory.of("gpu").held_seconds) == (8.0, 80.0)


def test_the_first_pod_after_none_says_how_long_a_new_one_holds_its_node():
    memory = Memory()
    again = [start(200.0, 9.0, 8.0), start(210.0, 90.0, 70.0)]
    memory.record_starts("gpu", [start(100.0, 90.0, 80.0)], empty=False)
    memory.record_starts("gpu", [], empty=False)  # nothing is heard for a moment
    memory.record_starts("gpu", again, empty=False)
    assert memory.of("gpu").held_seconds == 80.0
    memory.record_starts("gpu", [], empty=True)
    memory.record_starts("gpu", again, empty=False)
    assert memory.of("gpu").held_seconds == 8.0
