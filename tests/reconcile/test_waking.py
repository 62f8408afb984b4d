"""A loop makes a pass at once for what is urgent, and a moment later for counts that changed; rate limiters."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gpudask.clients.errors import ApiError
from gpudask.metrics.operator import Metrics
from gpudask.reconcile import loop as under_test
from gpudask.reconcile.loop import ClusterLoop
from gpudask.reconcile.pass_loop import PassLoop
from gpudask.reconcile.supervisor import Supervisor
from gpudask.clients.flow_control import CLUSTER, FairQueue
from gpudask.clients.flow_control import FairRateLimiter, RateLimiter
from tests.builders import a_manifest, a_pool
from tests.cancelling import ends_at_any_moment
from tests.eventually import eventually_async
from tests.planning.builders import stored
from tests.virtual_time import VirtualPolicy, now


class Passes:
    """Instead of a cluster's own: when each was made. `during` happens in each."""

    def __init__(self) -> None:
        self.made: list[float] = []
        self.told: list[Exception] = []
        self.during: Callable[[], None] = lambda: None

    async def reconcile(self) -> float:
        self.made.append(now())
        self.during()
        return 1000.0

    async def report_defect(self, error: Exception) -> None:
        self.told.append(error)

    async def stop(self) -> None:
        """Nothing is under way."""

    def edited(self) -> None:
        """Nothing is known of the older spec."""

    async def count(self, wanted: int) -> None:
        """Wait until so many were made."""

        async def made() -> int:
            return len(self.made)

        await eventually_async(made, lambda found: found >= wanted, f"{wanted} passes")

    async def stay(self, wanted: int, seconds: float) -> None:
        """See so many seconds pass without another."""
        await asyncio.sleep(seconds)
        assert len(self.made) == wanted


COUNTS_SECONDS = 0.2  # after which counts that moved are looked at
PASSES_PER_SECOND, PASSES_BURST = 5, 30  # of one cluster: what flaps costs others no more


@pytest.fixture(scope="module")
def event_loop_policy() -> VirtualPolicy:
    """Waits pass at once, and take exactly as long as they should."""
    return VirtualPolicy()


@pytest.fixture
def context() -> Any:
    return SimpleNamespace(
        clock=lambda: 1000.0,
        pass_queue=FairQueue(1, 1),
        first_pass_limiter=FairRateLimiter(200.0, 4.0),
        supervisor=Supervisor(),
        random=lambda: 0.5,
        deadline_seconds=1.0,
        preloads=None,
        pods=None,
        dependents={"ConfigMap": None},
        metrics=Metrics(),
        records=None,
        api=None,
    )


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    passes = Passes()
    monkeypatch.setattr(under_test, "Reconciler", lambda *_: passes)
    return passes


@pytest.fixture
def loop(context: Any, passes: Passes) -> ClusterLoop:
    return ClusterLoop(context, stored(a_manifest(a_pool())))


@pytest.fixture
async def running(loop: ClusterLoop, passes: Passes) -> AsyncIterator[ClusterLoop]:
    """The loop after the first pass, which needs no reason."""
    task = asyncio.create_task(loop.run())
    await passes.count(1)
    yield loop
    task.cancel()
    await asyncio.wait([task])


async def test_counts_wait_a_moment_and_many_of_them_wake_once(running: ClusterLoop, passes: Passes):
    heard = now()
    for _ in range(5):
        running.demand_changed(urgent=False)
    await passes.count(2)
    assert passes.made[1] >= heard + COUNTS_SECONDS
    await passes.stay(2, 2 * COUNTS_SECONDS)


async def test_what_is_urgent_wakes_at_once_and_takes_the_counts_along(running: ClusterLoop, passes: Passes):
    heard = now()
    running.demand_changed(urgent=False)
    running.demand_changed(urgent=True)
    await passes.count(2)
    assert passes.made[1] < heard + COUNTS_SECONDS
    await passes.stay(2, 2 * COUNTS_SECONDS)


async def test_it_ends_when_told_whatever_happens_at_that_moment(loop: ClusterLoop, passes: Passes):
    await ends_at_any_moment(loop.run, loop.wake)


async def test_it_ends_while_it_holds_off_too(loop: ClusterLoop, passes: Passes):
    def fails() -> None:
        raise ApiError(500, "InternalError", "no leader", "GET /pods")

    passes.during = fails
    edits = itertools.count(2)
    await ends_at_any_moment(
        loop.run, lambda: loop.resource_changed(stored(a_manifest(a_pool()), generation=next(edits)))
    )


def fails_for_an_hour() -> None:
    """As an API server that names a time."""
    raise ApiError(429, "TooManyRequests", "not now", "GET /pods", retry_after_seconds=3600.0)


async def test_what_asks_for_a_try_now_ends_the_wait_after_a_failure(context: Any):
    passes = Passes()
    passes.during = fails_for_an_hour
    loop = PassLoop(context, "default/demo", "default/uid", passes.reconcile, passes.report_defect)
    task = asyncio.create_task(loop.run())
    await passes.count(1)
    await passes.stay(1, 60.0)
    asked = now()
    loop.retry_now()
    await passes.count(2)
    assert passes.made[1] < asked + 1.0
    await passes.stay(2, 60.0)
    task.cancel()


async def test_what_asks_for_a_try_while_a_pass_fails_is_not_forgotten(context: Any):
    passes = Passes()
    loop = PassLoop(context, "default/demo", "default/uid", passes.reconcile, passes.report_defect)

    def fails() -> None:
        if len(passes.made) == 1:
            loop.retry_now()
        fails_for_an_hour()

    passes.during = fails
    task = asyncio.create_task(loop.run())
    await passes.count(2)
    assert passes.made[1] < passes.made[0] + 1.0
    await passes.stay(2, 60.0)
    task.cancel()


@pytest.mark.parametrize(("is_urgent", "least", "most"), [(True, 0.0, 1.0), (False, 4.0, 6.0)])
async def test_an_urgent_first_pass_waits_for_no_turn(context: Any, is_urgent: bool, least: float, most: float):
    passes, began = Passes(), now()
    for _ in range(1000):
        context.first_pass_limiter.reserve("default", began)
    reconcile, report = passes.reconcile, passes.report_defect
    loop = PassLoop(context, "default/demo", "default/uid", reconcile, report, is_urgent=is_urgent)
    task = asyncio.create_task(loop.run())
    await passes.count(1)
    task.cancel()
    assert least <= passes.made[0] - began <= most


async def test_a_cluster_on_hold_makes_no_pass_until_that_ends_or_lapses(
    running: ClusterLoop, context: Any, passes: Passes
):
    """Now and then it is looked up whether it exists, which may fail."""
    context.clock, looks = now, []

    async def get_cluster(*_: str) -> Any:
        looks.append(now())
        raise ApiError(503, "ServiceUnavailable", "the API server is away", "GET")

    context.api = SimpleNamespace(get_cluster=get_cluster)
    running.hold(60.0)
    running.wake()
    await passes.stay(1, 30.0)
    running.hold(0.0)
    await passes.count(2)
    running.hold(60.0)
    running.wake()
    await passes.stay(2, 59.0)
    await asyncio.sleep(2.0)
    assert len(passes.made) == 3
    assert 1 <= len(looks) <= 3


async def test_a_cluster_that_is_being_deleted_is_not_held(running: ClusterLoop, context: Any, passes: Passes):
    context.clock = now
    running.hold(60.0)
    running.resource_changed(stored(a_manifest(a_pool()), deletionTimestamp="2026-01-01T00:00:00Z"))
    await passes.count(2)
    assert passes.made[1] < passes.made[0] + 1.0


async def test_a_cluster_that_is_woken_all_the_time_makes_a_few_passes_a_second(running: ClusterLoop, passes: Passes):
    passes.during = lambda: running.demand_changed(urgent=True)
    running.demand_changed(urgent=True)
    before = len(passes.made)
    await asyncio.sleep(0.1)
    assert PASSES_BURST - 1 <= len(passes.made) - before <= PASSES_BURST
    before = len(passes.made)
    await asyncio.sleep(10.0)
    assert 10 * PASSES_PER_SECOND - 1 <= len(passes.made) - before <= 10 * PASSES_PER_SECOND + 1


async def test_a_pass_with_a_defect_is_counted_told_and_tried_again(
    loop: ClusterLoop, context: Any, passes: Passes, caplog: pytest.LogCaptureFixture
):
    def fails_once() -> None:
        if len(passes.made) == 1:
            raise KeyError("x")

    passes.during = fails_once
    task = asyncio.create_task(loop.run())
    await passes.count(2)
    task.cancel()
    assert [type(error) for error in passes.told] == [KeyError]
    assert context.supervisor.restarts == {"pass": 1}
    assert "KeyError" in caplog.text


def test_after_a_rest_there_is_a_burst_and_several_tokens_may_go_for_one_thing():
    limiter = RateLimiter(4.0, 3.0)
    assert [limiter.reserve(10.0) for _ in range(5)] == [10.0, 10.0, 10.0, 10.25, 10.5]
    assert limiter.reserve(20.0, 9) == 20.0
    assert limiter.reserve(20.0) == 21.75


def test_a_namespace_that_reserves_a_thousand_tokens_waits_for_them_alone():
    limiter = FairRateLimiter(100.0)
    theirs = [limiter.reserve("theirs", 10.0) for _ in range(1000)]
    assert theirs[-1] == pytest.approx(19.99)
    assert limiter.reserve("ours", 10.0) == 10.0
    assert limiter.reserve("ours", 10.0) == pytest.approx(10.02), "half of what there is, beside one other"
    assert limiter.reserve("ours", 30.0) == 30.0, "nothing is saved up"
    assert limiter.reserve("ours", 30.0) == pytest.approx(30.01), "nobody else reserves any more"


async def test_the_passes_of_one_namespace_do_not_hold_back_the_pass_of_another(context: Any):
    order: list[str] = []

    async def begins(cluster: str) -> None:
        CLUSTER.set(cluster)
        await context.pass_queue.slot_for_one_step()
        order.append(cluster)

    many = [asyncio.create_task(begins(f"theirs/{number}")) for number in range(1000)]
    await asyncio.sleep(0)
    await asyncio.create_task(begins("ours/1"))
    assert len(order) <= 4, "one was under way, and one had its turn"
    await asyncio.gather(*many)


async def test_between_two_passes_the_event_loop_goes_round(context: Any):
    """Answers that have come are taken in before the next plan is made."""
    rounds = [0]

    async def count_rounds() -> None:
        while True:
            await asyncio.sleep(0)
            rounds[0] += 1

    async def begins(cluster: str) -> int:
        CLUSTER.set(cluster)
        await context.pass_queue.slot_for_one_step()
        return rounds[0]

    counter = asyncio.create_task(count_rounds())
    began = await asyncio.gather(*(asyncio.create_task(begins(f"ours/{number}")) for number in range(20)))
    counter.cancel()
    assert len(set(began)) == 20
