"""Functions in threads, of which one at a time runs: the loop waits until the thread ends, sleeps, or waits for it.

So a function may call `time.sleep`, or anything of distributed that calls `sync`, and a seed still gives one history.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

from . import loop as loop_module
from .loop import Loop, here

_here = threading.local()


class KilledError(BaseException):
    """Ends a thread whose history is over."""


class Thread:
    """A thread that is used again and again. It runs only between `resume` and its next `park`."""

    def __init__(self) -> None:
        self._go, self._back = _thread.allocate_lock(), _thread.allocate_lock()
        self._go.acquire()
        self._back.acquire()
        self._job: Callable[[], None] | None = None
        self.loop: Loop | None = None
        self.is_killed = False
        threading.Thread(target=self._run, daemon=True).start()

    def start(self, loop: Loop, job: Callable[[], None]) -> None:
        """Run a job until it ends or parks."""
        self.loop, self._job, self.is_killed = loop, job, False
        self.resume()

    def resume(self, *_args: Any) -> None:
        """Let it run on until it ends or parks again."""
        self._go.release()
        self._back.acquire()

    def park(self) -> None:
        """Let the loop run on, from inside the thread, until somebody resumes us."""
        if self.is_killed:
            raise KilledError
        self._back.release()
        self._go.acquire()
        if self.is_killed:
            raise KilledError

    def _run(self) -> None:
        _here.thread = self
        while True:
            self._go.acquire()
            assert self._job is not None
            with contextlib.suppress(KilledError):
                self._job()
            self._job = None
            self._back.release()


_idle: list[Thread] = []  # of the process


class Threads:
    """The threads of one history."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._busy: dict[Thread, None] = {}
        loop.run_in_thread = self.run

    def run(self, future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Run a function in a thread; called on the loop, in the context of whoever wants it."""
        thread = _idle.pop() if _idle else Thread()
        self._busy[thread] = None
        context = here()

        def job() -> None:
            try:
                outcome, error = context.run(func, *args), None
            except Exception as raised:  # noqa: BLE001 (whoever waits gets it)
                outcome, error = None, raised
            finally:
                self._busy.pop(thread, None)
                _idle.append(thread)
            if thread.is_killed or future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(outcome)

        thread.start(self._loop, job)

    def kill(self) -> None:
        """End what still runs."""
        for thread in list(self._busy):
            thread.is_killed = True
            thread.resume()


def sleep(seconds: float) -> None:
    """Sleep in virtual time: `time.sleep`."""
    thread = _thread_here()
    assert thread.loop is not None
    thread.loop.call_later(max(seconds, 0.0), thread.resume, context=here())
    thread.park()


def sync(loop: Any, func: Callable[..., Any], *args: Any, callback_timeout: Any = None, **kwargs: Any) -> Any:
    """Await a coroutine function from a thread: `distributed.utils.sync`."""
    from dask.utils import parse_timedelta

    thread = _thread_here()
    if thread.is_killed:
        raise KilledError

    async def wait() -> Any:
        async with asyncio.timeout(parse_timedelta(callback_timeout, "s") if callback_timeout else None):
            return await func(*args, **kwargs)

    assert thread.loop is not None
    task = thread.loop.create_task(wait())
    task.add_done_callback(thread.resume, context=here())
    thread.park()
    return task.result()


def is_in_thread() -> bool:
    """Return whether this is one of the simulated threads."""
    return getattr(_here, "thread", None) is not None


def _thread_here() -> Thread:
    thread: Thread | None = getattr(_here, "thread", None)
    assert thread is not None, "this would block the simulation's loop"
    return thread


loop_module.sleep_in_thread = sleep
