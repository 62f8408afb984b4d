"""A loop looks at once at what is urgent, and a moment later at counts that moved."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gpudask.clients.errors import ApiError
from gpudask.reconcile import loop as under_test
from gpudask.reconcile.loop import ClusterLoop
from gpudask.reconcile.supervisor import Supervisor
from gpudask.reconcile.rate_limiter import RateLimiter
from tests.builders import a_manifest, a_pool
from tests.cancelling import ends_at_any_moment
from tests.planning.builders import stored


async def stops() -> None:
    """Nothing is under way."""


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> ClusterLoop:
    monkeypatch.setattr(under_test, "_COUNTS_SECONDS", 0.05)
    context: Any = SimpleNamespace(
        clock=lambda: 1000.0,
        count_turns=RateLimiter(100.0),
        first_turns=RateLimiter(200.0, 4.0),
        supervisor=Supervisor(),
        random=lambda: 0.5,
        patience_seconds=1.0,
        preloads=None,
        pods=None,
        support={"ConfigMap": None},
    )
    return ClusterLoop(context, stored(a_manifest(a_pool())))


async def test_counts_wait_a_moment_and_many_of_them_wake_once(loop: ClusterLoop):
    for _ in range(5):
        loop.heard(urgent=False)
    assert not loop._wake.is_set()
    await asyncio.wait_for(loop._wake.wait(), 5)
    assert loop._soon is None, "a second timer waits"


async def test_counts_wait_for_their_turn_among_all_clusters(loop: ClusterLoop):
    turns = loop._context.count_turns = RateLimiter(5.0)
    began = asyncio.get_running_loop().time()
    for _ in range(3):
        turns.take(began)

    loop.heard(urgent=False)
    await asyncio.wait_for(loop._wake.wait(), 5)
    assert asyncio.get_running_loop().time() >= began + 3 / turns.a_second
    assert loop._soon is None, "a second timer waits"


async def test_what_is_urgent_does_not_wait_for_a_turn(loop: ClusterLoop):
    loop._context.count_turns = RateLimiter(0.001)
    loop._context.count_turns.take(asyncio.get_running_loop().time())
    loop._wake_in_turn()
    assert not loop._wake.is_set()
    loop.heard(urgent=True)
    assert loop._wake.is_set()


async def test_what_is_urgent_wakes_at_once_and_takes_the_counts_along(loop: ClusterLoop):
    loop.heard(urgent=False)
    loop.heard(urgent=True)
    assert loop._wake.is_set()
    assert loop._soon is None


async def test_it_ends_when_told_whatever_happens_at_that_moment(loop: ClusterLoop):
    async def make() -> float:
        return 1000.0

    passes: Any = SimpleNamespace(make=make, stop=stops)
    loop._reconciler = passes
    await ends_at_any_moment(loop.run, loop.wake)


async def test_it_ends_while_it_holds_off_too(loop: ClusterLoop):
    async def make() -> float:
        raise ApiError(500, "InternalError", "no leader", "GET /pods")

    passes: Any = SimpleNamespace(make=make, stop=stops)
    loop._reconciler = passes
    await ends_at_any_moment(loop.run, loop._edited.set)


async def test_a_cluster_that_is_woken_all_the_time_makes_a_few_passes_a_second(loop: ClusterLoop):
    made = 0

    async def make() -> float:
        nonlocal made
        made += 1
        loop.heard(urgent=True)
        return 1000.0

    loop._turns = RateLimiter(5.0, 10.0)
    passes: Any = SimpleNamespace(make=make, stop=stops)
    loop._reconciler = passes
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(0.5)
    running.cancel()
    assert 10 <= made <= 10 + 3


async def test_a_pass_with_a_defect_is_counted_told_and_tried_again(
    loop: ClusterLoop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(under_test, "_FIRST_RETRY_SECONDS", 0.0)
    made, told, again = 0, [], asyncio.Event()

    async def make() -> float:
        nonlocal made
        made += 1
        if made > 1:
            again.set()
            return 1000.0
        raise KeyError("x")

    async def tell_defect(error: Exception) -> None:
        told.append(error)

    passes: Any = SimpleNamespace(make=make, stop=stops, tell_defect=tell_defect)
    loop._reconciler = passes
    running = asyncio.create_task(loop.run())
    async with asyncio.timeout(5):
        await again.wait()
    running.cancel()
    assert [type(error) for error in told] == [KeyError]
    assert loop._context.supervisor.restarts == {"pass": 1}
    assert "KeyError" in caplog.text


def test_turns_may_be_taken_at_once_after_a_rest_and_several_for_one_thing():
    turns = RateLimiter(4.0, 3.0)
    assert [turns.take(10.0) for _ in range(5)] == [10.0, 10.0, 10.0, 10.25, 10.5]
    assert turns.take(20.0, 9) == 20.0
    assert turns.take(20.0) == 21.75
