"""A takeover of the ledger by an operator that hears late of what had happened before it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpudask.api.reasons import Cause
from gpudask.api.status import PoolStatus
from gpudask.planning.ledger.causes import Gone, Holder
from gpudask.planning.ledger.totals import PoolCount
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
