"""A task that ends without being cancelled is logged, counted, reported and restarted, with a growing delay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gpudask.reconcile.supervisor import Supervisor
from tests.cancelling import ends_at_any_moment


class Time:
    """A clock that only sleeping and working move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Work:
    """It fails so many times, each after `lasts` seconds, then ends by itself."""

    def __init__(self, time: Time, times: int, fail: Callable[[], None], lasts: float = 0.0) -> None:
        self.runs = 0
        self._time, self._times, self._fail, self._lasts = time, times, fail, lasts

    async def __call__(self) -> None:
        self.runs += 1
        self._time.now += self._lasts
        if self.runs <= self._times:
            self._fail()


def raise_(error: BaseException) -> None:
    raise error


async def done(task: asyncio.Task[None]) -> None:
    async with asyncio.timeout(60):
        await task


async def test_what_fails_begins_again_ever_later(caplog: pytest.LogCaptureFixture):
    time, told = Time(), []
    supervisor = Supervisor(time.sleep, lambda: time.now)
    work = Work(time, 9, lambda: raise_(ValueError("no such number")))
    await done(
        supervisor.start(
            work, kind="feed", name="demo", may_end=True, on_failure=lambda why, after: told.append((why, after))
        )
    )
    assert time.slept == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    assert supervisor.restarts == {"feed": 9}
    assert told[0] == ("ValueError", 0.5)
    assert "no such number" in caplog.text, "the log has no traceback"


async def test_what_ran_for_long_begins_again_soon():
    time = Time()
    work = Work(time, 3, lambda: raise_(ValueError()), lasts=300)
    await done(Supervisor(time.sleep, lambda: time.now).start(work, kind="feed", name="demo", may_end=True))
    assert time.slept == [0.5, 0.5, 0.5]


async def test_a_cancellation_that_nobody_meant_for_it_ends_it_not():
    """As of a future that another task has cancelled."""
    time = Time()
    work = Work(time, 2, lambda: raise_(asyncio.CancelledError()))
    supervisor = Supervisor(time.sleep, lambda: time.now)
    await done(supervisor.start(work, kind="feed", name="demo", may_end=True))
    assert (work.runs, supervisor.restarts["feed"]) == (3, 2)


async def test_what_fails_as_it_is_cancelled_does_not_begin_again(caplog: pytest.LogCaptureFixture):
    time, begun = Time(), asyncio.Event()

    async def work() -> None:
        is_first = not begun.is_set()
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if is_first:
                raise RuntimeError("its connection is gone") from None
            raise

    supervisor = Supervisor(time.sleep, lambda: time.now)
    task = supervisor.start(work, kind="log", name="demo")
    await begun.wait()
    task.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not supervisor.restarts
    assert task.cancelled()
    assert "its connection is gone" in caplog.text, "a defect is told all the same"


async def test_whatever_runs_still_ends_with_the_supervisor():
    supervisor, begun = Supervisor(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    tasks = [supervisor.start(work, kind="log", name="demo"), supervisor.start(work, kind="feed", name="demo")]
    await begun.wait()
    await supervisor.stop()
    assert all(task.cancelled() for task in tasks)
    await supervisor.stop()


async def test_what_may_not_end_begins_again_when_it_returns():
    time = Time()
    again = asyncio.Event()

    async def work() -> None:
        if time.slept:
            again.set()
            await asyncio.Event().wait()

    task = Supervisor(time.sleep, lambda: time.now).start(work, kind="watch", name="pods")
    async with asyncio.timeout(60):
        await again.wait()
    task.cancel()


async def test_whoever_is_told_may_fail_too():
    time = Time()
    work = Work(time, 1, lambda: raise_(ValueError()))
    supervisor = Supervisor(time.sleep, lambda: time.now)
    await done(
        supervisor.start(work, kind="feed", name="demo", may_end=True, on_failure=lambda *_: raise_(RuntimeError()))
    )
    assert work.runs == 2


async def test_it_ends_when_told_while_it_works_or_waits():
    happened = asyncio.Event()

    async def work() -> None:
        await happened.wait()
        raise ValueError

    supervisor = Supervisor()
    await ends_at_any_moment(lambda: _follow(supervisor.start(work, kind="feed", name="demo")), happened.set)


async def _follow(task: asyncio.Task[None]) -> None:
    try:
        await task
    finally:
        task.cancel()
