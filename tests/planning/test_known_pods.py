"""A takeover of the ledger where one of the two operators had not heard of pods what the other one had.

A status says up to when its pods were known (`podsKnownAt`); an operator knows the same of its own watch.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpudask.api.reasons import Cause
from gpudask.api.status import epoch, iso
from gpudask.planning.ledger.causes import Gone, Holder
from tests.planning.test_takeover import Late, settled


def a_cluster(*uids: str, gpus: int = 1) -> Late:
    """One whose pods `uids` have been there for 10 seconds, as is known and counted."""
    on = Late()
    for uid in uids:
        on.place(uid, gpus=gpus, rest=Cause.SPARE)
    on.wait(10)
    on.known_at = on.now
    on.count()
    return on


def counts_blind(on: Late, seconds: float) -> None:
    """Some time passes, and the operator counts by what it knew before."""
    pods, gone = on.pods, on.gone
    on.pods, on.gone = {holder.uid: holder for holder in known(on)}, []
    on.now += seconds
    on.count()
    on.pods, on.gone, on.lifetimes = pods, gone, on.lifetimes + seconds * sum(each.gpus for each in pods.values())


def known(on: Late) -> list[Holder]:
    assert on.ledger is not None
    return [each.holder for each in on.ledger.pods.values()]


def another(on: Late, *, knows: bool = True) -> None:
    """Another operator is about to take over, which has seen all that happened, or nothing since `known_at`."""
    gone = on.gone
    on.restart()
    on.gone = [replace(each, is_stamped=True) for each in gone] if knows else []
    on.known_at = on.now if knows else on.known_at


def test_a_pod_that_came_after_what_was_known_by_the_last_count_counts_from_then():
    """And the one in whose place it came had been counted for too long."""
    on = a_cluster("a")
    on.wait(3)
    on.end("a")
    on.wait(2)
    on.place("b", gpus=2, rest=Cause.SPARE)
    counts_blind(on, 20)
    another(on)
    on.count()
    assert settled(on) == on.lifetimes == 13 + 2 * 20


def test_a_pod_that_came_and_went_after_what_was_known_by_the_last_count_counts_whole():
    on = a_cluster("a")
    on.wait(2)
    on.place("b", gpus=2, rest=Cause.SPARE)
    on.wait(7)
    on.end("b")
    counts_blind(on, 9)
    another(on)
    on.count()
    assert settled(on) == on.lifetimes == 10 + 18 + 2 * 7


def test_what_had_ended_as_was_known_by_the_last_count_is_none_of_the_gpus_that_it_had():
    """Those were a pod's that nobody saw go: it has half of the time since."""
    on = a_cluster("a", "b")
    on.end("a")
    on.gone[-1] = replace(on.gone[-1], is_stamped=True)
    ended = on.gone[-1]
    on.known_at = on.now
    on.count()
    on.end("b")
    on.restart(seconds=10)
    on.gone = [replace(ended, at=ended.at - 0.3, is_there=True)]  # as its kubelet stamped it, in whole seconds
    on.known_at = on.now
    on.count()
    assert on.ledger is not None
    assert (on.ledger.unseen, settled(on)) == (1, 20 + 10 / 2)


def test_where_the_last_count_missed_something_what_went_unseen_may_have_gone_since_it_knew():
    on = a_cluster("a")
    on.end("a")
    on.wait(2)
    on.place("b", rest=Cause.SPARE)
    counts_blind(on, 18)
    on.restart(seconds=10)
    on.known_at = on.now
    on.count()
    assert settled(on) == 10 + (20 + 10) / 2 + 28  # of a half of the time since it was known to be there; and b


def test_where_the_last_count_missed_nothing_what_went_unseen_went_after_it():
    """A watch that tells nothing is quiet, as far as anybody knows."""
    on = a_cluster("a")
    counts_blind(on, 20)
    on.end("a")
    on.restart(seconds=10)
    on.known_at = on.now
    on.count()
    assert settled(on) == 30 + 10 / 2


@pytest.mark.parametrize("passes", [0, 3])
def test_a_pod_that_the_last_count_knew_to_be_gone_is_not_counted_by_who_has_not_heard_of_it(passes: int):
    on = a_cluster("a")
    stale = dict(on.pods)
    on.wait(2)
    on.end("a")
    known_at, on.known_at = on.known_at, on.now
    on.count()
    on.wait(5)
    on.known_at = known_at
    another(on, knows=False)
    for _ in range(passes):
        on.pods = stale
        on.now += 4
        on.count()
    assert not passes or settled(on) == on.lifetimes == 12
    on.pods, on.known_at = {}, on.now
    on.gone = [Gone("a", "gpu", "demo-a", 1, 1000.0, on.now)]  # as is told now
    on.count()
    assert settled(on) == on.lifetimes == 12


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("passes", [1, 20])
def test_gpus_of_pods_that_the_last_count_alone_knew_go_on_until_they_are_told(passes: int, is_gone: bool):
    on = a_cluster("a")
    on.wait(1)
    known_at = on.known_at
    on.place("b", gpus=2, rest=Cause.SPARE)
    on.wait(5)
    on.known_at = on.now
    on.count()
    there = on.pods.pop("b")
    on.known_at = known_at
    another(on, knows=False)
    for _ in range(passes):
        on.wait(5)
        on.lifetimes += 2 * 5
        on.count()
        assert on.status.pools[0].gpus_held == 3
        assert settled(on) == pytest.approx(on.lifetimes)
    on.wait(3)
    on.lifetimes += 2 * 3
    if is_gone:
        on.gone = [Gone("b", "gpu", "demo-b", 2, there.placed, on.now, is_stamped=True)]
    else:
        on.pods["b"] = there
    on.wait(2)
    on.known_at = on.now
    on.count()
    assert settled(on) == pytest.approx(on.lifetimes)
    on.wait(7)
    on.count()
    assert settled(on) == pytest.approx(on.lifetimes)
    assert on.status.pools[0].gpus_held == (1 if is_gone else 3)


def test_who_takes_over_without_having_heard_knows_as_much_as_the_count_it_goes_on_from():
    """A third one does not count anew what the first one had counted."""
    on = a_cluster("a")
    known_at = on.known_at
    on.place("b", rest=Cause.SPARE)
    on.wait(5)
    on.known_at = first = on.now
    on.count()
    there, on.known_at = on.pods, known_at
    on.pods = {"a": there["a"]}
    another(on, knows=False)
    on.now, on.lifetimes = on.now + 4, on.lifetimes + 8
    on.count()
    assert epoch(on.status.pods_known_at) == first
    on.pods = there
    another(on)
    on.wait(6)
    on.count()
    assert settled(on) == on.lifetimes == 25 + 15


@pytest.mark.parametrize("known_at", ["", "garbage", iso(0.0), iso(9e9)])
def test_a_time_that_cannot_be_true_costs_no_more_than_what_came_late(known_at: str):
    on = a_cluster("a")
    on.wait(500)
    on.known_at = on.now
    on.count()
    on.status = on.status.model_copy(update={"pods_known_at": known_at})
    on.restart(seconds=5)
    on.known_at = on.now
    on.count()
    assert settled(on) == on.lifetimes


def test_a_count_says_up_to_when_its_pods_are_known():
    on = a_cluster("a")
    on.ahead = 3600.0
    on.wait(7)
    on.count()
    assert (epoch(on.status.counted_at), epoch(on.status.pods_known_at)) == (1017.0 + 3600.0, 1010.0 + 3600.0)
