"""Supervisor of asyncio tasks: one that ends without being cancelled is logged, counted, reported and restarted.

asyncio's task group, and anyio's, end the others when one fails; here each is on its own. A task handles the failures
that it expects, and tries again by itself: whatever gets as far as here is a defect.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

_LOG = logging.getLogger(__name__)
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.5, 60.0
# A task that has run for so long starts again as if it had never failed.
_STEADY_SECONDS = 300.0

OnFailure = Callable[[str, float], None]


class Supervisor:
    """Runs tasks. `restarts`: how often tasks of each kind had to be restarted. `clock`: monotonic seconds."""

    def __init__(
        self,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sleep = sleep
        self._clock = clock
        self.restarts: Counter[str] = Counter()
        self._running: set[asyncio.Task[None]] = set()

    def start(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        *,
        kind: str,
        name: str,
        may_end: bool = False,
        on_failure: OnFailure | None = None,
    ) -> asyncio.Task[None]:
        """Run `work` until the task is cancelled, or, if it `may_end`, until it returns.

        `on_failure(reason, seconds)` is called if it ends otherwise; it is restarted in so many seconds.
        """
        task = asyncio.create_task(self._run(work, kind, name, may_end, on_failure), name=f"{kind} {name}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def stop(self) -> None:
        """Cancel whatever runs still, and wait until it has ended."""
        tasks = tuple(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        kind: str,
        name: str,
        may_end: bool,
        on_failure: OnFailure | None,
    ) -> None:
        delay = _FIRST_RETRY_SECONDS
        while True:
            started = self._clock()
            error = await _outcome(work)
            if error is None and may_end:
                return
            if self._clock() - started >= _STEADY_SECONDS:
                delay = _FIRST_RETRY_SECONDS
            self.restarts[kind] += 1
            _LOG.error("%s %s ended: a defect; it is restarted in %.1f s", kind, name, delay, exc_info=error)
            if on_failure is not None:
                _report(on_failure, error, delay)
            await self._sleep(delay)
            delay = min(2 * delay, _LAST_RETRY_SECONDS)


async def _outcome(work: Callable[[], Coroutine[Any, Any, None]]) -> BaseException | None:
    """Run `work`; the error with which it ended, None where it just returned.

    Raises:
        asyncio.CancelledError: the task was cancelled, whatever its work made of that.
    """
    try:
        await work()
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        return error  # of something that it waited for: this task was not cancelled
    except Exception as error:
        if _is_cancelled():
            _LOG.error("a task that was cancelled failed: a defect", exc_info=error)
            raise asyncio.CancelledError from error
        return error
    return None


def _is_cancelled() -> bool:
    """Whether the running task was cancelled, or is none.

    A function, since the frames of an error keep their variables, and a cancelled task keeps its error: with the task
    in one of them all that it worked with would wait for the collector.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _report(on_failure: OnFailure, error: BaseException | None, delay: float) -> None:
    try:
        on_failure(type(error).__name__ if error is not None else "it returned", delay)
    except Exception:  # noqa: BLE001 - it must not end the supervision
        _LOG.exception("reporting a failed task: a defect")
