"""An event loop in virtual time: when nothing is ready, its clock jumps to the next timer.

All processes of a simulated cluster share the loop. Each is a `Host`; what runs for it carries it in `HOST`, a context
variable, which tasks, timers and threads inherit. So a process can be held (a function holds the GIL: nothing of it
runs for a while), or be dead (nothing of it ever runs again), as `kill -9` does.

Import this module before distributed: it replaces the clocks of the `time` module, which distributed takes by name.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any

REAL_TIME = time.perf_counter  # of this machine
START = 1_700_000_000.0
TICK = 1e-7  # seconds that pass with each look at the clock: no two moments are the same, as in real life


class Clock:
    """Virtual seconds since 1970. One for the process, as clocks are."""

    def __init__(self) -> None:
        self.now = START

    def read(self) -> float:
        """Return the time."""
        self.now += TICK
        return self.now


CLOCK = Clock()
sleep_in_thread: Callable[[float], None] | None = None  # `threads` sets it


def _sleep(seconds: float) -> None:
    assert sleep_in_thread is not None
    sleep_in_thread(seconds)


for name in ("time", "monotonic", "perf_counter", "thread_time", "process_time"):
    setattr(time, name, CLOCK.read)
time.time_ns = time.monotonic_ns = time.perf_counter_ns = lambda: int(CLOCK.read() * 1e9)
time.sleep = _sleep


class Host:
    """A simulated process: the scheduler, a worker, a client."""

    def __init__(self, name: str, ip: str) -> None:
        self.name = name
        self.ip = ip
        self.is_dead = False
        self.held_until = 0.0
        self.ports = 0
        self.remains: set[asyncio.Task[Any]] = set()
        self._held: list[asyncio.Handle] = []

    def hold(self, loop: Loop, seconds: float) -> None:
        """Let nothing of this process run for a while."""
        until = CLOCK.now + seconds
        if until <= self.held_until:
            return
        if not self.held_until:
            loop.call_at(until, self._release, loop, context=Context())
        self.held_until = until

    def defer(self, handle: asyncio.Handle) -> None:
        """Keep what would have run meanwhile, in order."""
        self._held.append(handle)

    def _release(self, loop: Loop) -> None:
        if self.held_until > CLOCK.now:
            loop.call_at(self.held_until, self._release, loop, context=Context())
            return
        self.held_until = 0.0
        held, self._held = self._held, []
        loop.run_soon(held)


HOST: ContextVar[Host] = ContextVar("host")


class IdleError(Exception):
    """Nothing is ready and no timer is set: whoever waits does so for ever."""


class Loop(asyncio.BaseEventLoop):
    """The event loop. `random` is the seed's, for delays of what runs in threads."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(f"loop {seed}")
        self.run_in_thread: Callable[[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]], None] | None = None
        self.inline_executors: set[int] = set()  # ids of executors whose functions only compute

    def time(self) -> float:
        """Return the time, in the same seconds as `time.time`."""
        return CLOCK.now

    def run_soon(self, handles: list[asyncio.Handle]) -> None:
        """Run what was kept, in order."""
        self._ready.extend(handles)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """Run what only computes after a while in place, all else in a thread that hands over strictly."""
        future = self.create_future()
        if executor is None or id(executor) in self.inline_executors:
            # Once in a while it takes long, as for a large graph
            seconds = 3.0 if self.random.random() < 0.01 else self.random.choice((0.0001, 0.001, 0.005, 0.02))
            self.call_later(seconds, _run, future, func, args)
        else:
            assert self.run_in_thread is not None
            self.call_soon(self.run_in_thread, future, func, args)
        return future

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled
        if not ready:
            while scheduled and scheduled[0]._cancelled:
                self._timer_cancelled_count -= 1
                heapq.heappop(scheduled)._scheduled = False
            if not scheduled:
                if self._stopping:
                    return
                raise IdleError
            CLOCK.now = max(CLOCK.now, scheduled[0]._when)
        while scheduled and scheduled[0]._when <= CLOCK.now:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            ready.append(handle)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            host = handle._context.get(HOST)
            if host is not None:
                if host.is_dead:
                    continue
                if host.held_until:
                    host.defer(handle)
                    continue
            handle._run()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave it in the heap: it is dropped when it is due."""

    def _write_to_self(self) -> None:
        """Nobody sleeps who would have to be woken."""

    def _process_events(self, event_list: Any) -> None:
        raise NotImplementedError


def _run(future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        result = func(*args)
    except Exception as error:  # noqa: BLE001 (whoever waits gets it)
        if not future.done():
            future.set_exception(error)
    else:
        if not future.done():
            future.set_result(result)


def within(host: Host) -> Context:
    """Return a context in which what runs belongs to `host`."""
    context = Context()
    context.run(HOST.set, host)
    return context


def here() -> Context:
    """Return a copy of the context: what runs in it belongs to the same host."""
    return copy_context()
