"""A takeover of the ledger by an operator that hears late of what had happened before it."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from gpudask.api.reasons import Cause
from gpudask.api.status import PoolStatus
from gpudask.planning.ledger.causes import Gone, Holder
from gpudask.planning.ledger.totals import PoolCount
from tests.builders import a_pool
from tests.planning.builders import cluster, pod
from tests.planning.test_ledger import Operator


def settled(on: Operator) -> float:
    """All GPU-seconds, as a record has them."""
    assert on.ledger is not None
    return sum(on.ledger.settled().of("gpu").seconds.values())


def takes_over(
    on: Operator, *, unheard: tuple[str, ...] = (), there_yet: tuple[str, ...] = (), ago: float = 0.0
) -> None:
    """Another operator begins, and knows of the pods as they were `ago` seconds before its clock's time."""
    pods, stale = dict(on.pods), {uid: on.gone_holders[uid] for uid in there_yet}
    on.restart(seconds=ago)
    on.pods = {uid: holder for uid, holder in (pods | stale).items() if uid not in unheard}
    on.count()
    on.pods = pods


class Late(Operator):
    """One that keeps what ended."""

    def __init__(self) -> None:
        super().__init__()
        self.gone_holders: dict[str, Holder] = {}

    def end(self, uid: str = "a") -> None:
        self.gone_holders[uid] = self.pods[uid]
        super().end(uid)


@pytest.mark.parametrize("passes", [0, 3])
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_pod_that_was_counted_and_of_which_the_next_operator_hears_late_is_no_second_one(passes: int, is_gone: bool):
    on = Late()
    on.place("a", rest=Cause.SPARE)
    on.wait(10)
    on.place("b", rest=Cause.SPARE)
    on.wait(8)
    on.count()
    takes_over(on, unheard=("b",), ago=6)
    there = on.pods.pop("b")
    for _ in range(passes):
        on.wait(2)
        on.lifetimes += 2
        on.count()
    on.pods["b"] = there
    on.wait(1)
    if is_gone:
        on.end("b")
        on.gone[-1] = replace(on.gone[-1], is_stamped=True)
    on.wait(4)
    on.count()
    assert settled(on) == pytest.approx(on.lifetimes)
    on.wait(30)
    on.count()
    assert sum(on.seconds().values()) == pytest.approx(on.lifetimes)


@pytest.mark.parametrize("others", [True, False])
def test_a_pod_that_had_ended_and_was_there_yet_for_the_next_operator_is_not_counted_since(others: bool):
    """Where other pods came in its place its GPUs are taken for theirs, until the news comes."""
    on = Late()
    on.place("a", rest=Cause.SPARE)
    on.wait(20)
    on.end("a")
    ended = on.now
    if others:
        on.place("b", rest=Cause.SPARE)
    on.wait(5)
    on.count()
    takes_over(on, unheard=("b",), there_yet=("a",), ago=6)
    on.pods["a"], there = on.gone_holders["a"], dict(on.pods)
    on.now += 3
    on.lifetimes += 3 * len(there)
    on.count()
    on.pods = there
    on.gone.append(Gone("a", "gpu", "demo-a", 1, 1000.0, ended, is_stamped=True))
    on.wait(4)
    on.count()
    assert settled(on) == pytest.approx(on.lifetimes)


def test_news_of_long_after_a_takeover_is_no_correction_of_it():
    on = Late()
    on.place("a", rest=Cause.SPARE)
    on.wait(10)
    on.count()
    on.restart()
    on.count()
    on.wait(70)
    on.count()
    assert on.ledger is not None
    assert on.ledger.takeover is None


def test_a_pod_without_gpus_of_whose_end_the_next_operator_hears_late_is_nothing_to_count():
    on = Late()
    on.place("a", rest=Cause.SPARE)
    on.wait(10)
    on.count()
    takes_over(on, ago=6)
    on.wait(2)
    on.gone.append(Gone("c", "cpu", "demo-c", 0, on.now - 20, on.now - 1))
    on.count()
    assert settled(on) == on.lifetimes
    assert on.ledger is not None
    assert not sum(on.ledger.of("cpu").seconds.values())


def test_what_was_counted_too_much_the_next_operator_leaves_out_as_this_one_would_have():
    on = Late()
    on.place("a", rest=Cause.SPARE)
    on.place("b", rest=Cause.SPARE)
    on.wait(10)
    on.count()
    on.end("b")
    on.gone[-1] = replace(on.gone[-1], at=on.now - 6, is_stamped=True)
    on.lifetimes -= 6
    on.count()
    on.restart(seconds=2)
    on.count()
    assert settled(on) == on.lifetimes == 4 + 12
    on.restart(seconds=10)
    on.count()
    assert sum(on.seconds().values()) == on.lifetimes


@pytest.mark.parametrize(("written", "surplus"), [(-5.0, 0.0), (4.0, 4.0), (1e9, 10.0), (float("nan"), 0.0)])
def test_a_surplus_that_somebody_wrote_is_at_most_what_was_counted(written: float, surplus: float):
    row = PoolStatus(name="gpu", gpu_seconds_held=10.0, gpu_seconds_surplus=written)
    assert PoolCount.of(row).surplus == surplus


# --- pods that a list alone shows to be gone: they ended at some time since they were last known to be there ---


def found_gone(on: Late, uid: str, *, there: float, found: float) -> Gone:
    """A pod that was last known to be there at a time, and that a list at another one did not have."""
    holder = on.gone_holders[uid]
    cached = pod(cluster(a_pool("gpu", gpu={})), "gpu", 0)
    cached = replace(cached, uid=uid, placed=holder.placed, gpus=holder.gpus, there_at=there)
    return replace(Gone.of(cached, found), dask_name=holder.dask_name)


def test_a_pod_that_a_list_shows_to_be_gone_counts_for_half_of_the_time_in_which_it_may_have_ended():
    on = Late()
    on.place("a", rest=Cause.SPARE)
    on.wait(10)
    on.count()
    on.end("a")
    on.now += 8
    on.gone = [found_gone(on, "a", there=on.now - 8, found=on.now)]
    on.count()
    assert settled(on) == 10 + 8 / 2


@pytest.mark.parametrize(("unanswered", "counted"), [(-inf, 5.0), (-99.0, 5.0), (8.0, 9.0), (99.0, 10.0)])
def test_what_no_pod_is_found_for_was_there_while_the_api_server_answered_nobody(unanswered: float, counted: float):
    """It was killed, and both operators with it: the pod went as it came back, 8 seconds after the last count."""
    on = Late()
    on.place("a", rest=Cause.SPARE)
    on.wait(10)
    on.count()
    on.unanswered = on.now + unanswered
    on.restart(seconds=10)
    on.end("a")
    on.gone = []
    on.count()
    assert sum(on.seconds().values()) == 10 + counted


def test_what_is_stamped_or_was_placed_later_is_in_no_such_doubt():
    known = replace(pod(cluster(a_pool("gpu", gpu={})), "gpu", 0), placed=100.0, there_at=90.0)
    assert Gone.of(known, 110.0).doubt_seconds == 5.0
    ended = Gone.of(replace(known, finished_at=104.0), 110.0)
    assert (ended.at, ended.doubt_seconds) == (104.0, 0.0)
    assert Gone.of(replace(known, there_at=0.0), 110.0).at == 110.0


def test_gpus_of_the_last_count_are_those_of_pods_that_were_there_and_not_of_what_a_list_found_gone():
    """Two pods changed places just before the last count, and the next operator's watch was cut."""
    on = Late()
    on.place("old", rest=Cause.SPARE)
    on.wait(10)
    there = on.now
    on.wait(5)
    on.end("old")
    on.place("new", rest=Cause.SPARE)
    on.wait(5)
    on.count()
    on.restart(seconds=10)
    on.gone = [found_gone(on, "old", there=there, found=on.now)]
    on.count()
    assert settled(on) == on.lifetimes == 30


def test_one_that_was_counted_and_that_a_list_found_gone_has_half_of_the_time_since():
    on = Late()
    on.place("a", rest=Cause.SPARE)
    on.wait(10)
    there = on.now
    on.wait(5)
    on.count()
    on.end("a")
    on.restart(seconds=10)
    on.gone = [found_gone(on, "a", there=there, found=on.now)]
    on.count()
    assert settled(on) == 15 + 10 / 2


@pytest.mark.parametrize("comes", [False, True])
def test_a_takeover_is_put_right_by_a_list_that_shows_pods_to_be_gone_that_the_last_count_had_not(comes: bool):
    """The next operator's watch was cut, and held on to them; so none of it is theirs since they were known."""
    on = Late()
    on.place("old", gpus=2, rest=Cause.SPARE)
    on.wait(10)
    there = on.now
    on.wait(2)
    on.end("old")
    if comes:
        on.place("new", rest=Cause.SPARE)
    on.wait(3)
    on.count()
    takes_over(on, unheard=("new",), there_yet=("old",), ago=5)
    on.wait(5)
    on.gone = [found_gone(on, "old", there=there, found=on.now)]
    on.count()
    assert settled(on) == on.lifetimes == 24 + (13 if comes else 0)


def test_what_was_counted_is_what_a_list_found_gone_rather_than_what_ended_as_it_was_counted():
    on = Late()
    on.place("a", rest=Cause.SPARE)
    on.place("b", rest=Cause.SPARE)
    on.wait(10)
    there = on.now
    on.wait(5)
    on.end("b")
    (b,) = on.gone
    on.count()
    on.end("a")
    on.restart(seconds=10)
    on.gone = [b, found_gone(on, "a", there=there, found=on.now)]
    on.count()
    assert settled(on) == 30 + 10 / 2


# --- a pod that was there by the last count, which had no GPUs ---


def test_where_the_last_count_had_no_gpus_a_pod_that_is_there_yet_may_be_one_that_was_counted_and_has_gone():
    """The watch of the operator that counted told of its end, and the next one's did not. Nor will it ever."""
    on = Late()
    on.place("a", rest=Cause.SPARE)
    on.wait(20)
    on.count()
    on.end("a")
    on.count()
    takes_over(on, there_yet=("a",), ago=3)
    assert settled(on) == 20 + 3
