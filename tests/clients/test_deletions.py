"""What is gone is remembered for a while, and then forgotten."""

from __future__ import annotations

from gpudask.clients import deletions as module
from gpudask.clients.deletions import Deletions


class Time:
    now = 100.0


def remembering() -> tuple[Time, Deletions]:
    time = Time()
    return time, Deletions(lambda: time.now, kept_seconds=60.0)


def test_a_deletion_is_remembered_for_as_long_as_anything_older_may_come():
    time, deletions = remembering()
    time.now += 59
    deletions.note("a", 7)
    for _ in range(60):
        time.now += 1
        deletions.forget_old()
        assert deletions.version("a") == 7


def test_and_is_forgotten_while_nothing_else_is_deleted():
    time, deletions = remembering()
    deletions.note("a", 7)
    for _ in range(2):
        time.now += 60
        deletions.forget_old()
    assert deletions.version("a") is None
    assert len(deletions) == 0


def test_one_that_comes_back_is_not_gone():
    time, deletions = remembering()
    for uid in ("a", "b"):
        deletions.note(uid, 7)
    time.now += 60
    deletions.forget_old()
    assert deletions.pop("a") == 7
    assert (deletions.version("a"), deletions.version("b")) == (None, 7)


def test_somebody_who_deletes_without_end_fills_no_memory():
    _, deletions = remembering()
    for number in range(3 * module._MOST):
        deletions.note(str(number), number)
    assert len(deletions) <= 2 * module._MOST + 1
    assert deletions.version(str(3 * module._MOST - 1)) is not None
