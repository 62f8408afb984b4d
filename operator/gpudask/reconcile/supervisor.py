"""Supervised tasks: one that ends though nobody told it to is logged, counted, told, and begun again.

asyncio's task group, and anyio's, end the others when one fails; here each is on its own. What a task is about knows
its own failures, and tries again by itself: whatever gets as far as here is a defect.
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
# A task that has run for so long begins again as if it had never failed.
_STEADY_SECONDS = 300.0

Failed = Callable[[str, float], None]


class Supervisor:
    """`restarts`: how often a task of each kind had to be begun again. `clock`: monotonic seconds."""

    def __init__(
        self,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sleep = sleep
        self._clock = clock
        self.restarts: Counter[str] = Counter()

    def start(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        *,
        kind: str,
        name: str,
        may_end: bool = False,
        failed: Failed | None = None,
    ) -> asyncio.Task[None]:
        """Run `work` until the task is cancelled, or, if it `may_end`, until it returns.

        `failed` is told why it ended otherwise, and in how many seconds it begins again.
        """
        return asyncio.create_task(self._run(work, kind, name, may_end, failed), name=f"{kind} {name}")

    async def _run(
        self, work: Callable[[], Coroutine[Any, Any, None]], kind: str, name: str, may_end: bool, failed: Failed | None
    ) -> None:
        delay = _FIRST_RETRY_SECONDS
        while True:
            began = self._clock()
            error = await _outcome(work)
            if error is None and may_end:
                return
            if self._clock() - began >= _STEADY_SECONDS:
                delay = _FIRST_RETRY_SECONDS
            self.restarts[kind] += 1
            _LOG.error("%s %s ended: a defect; it begins again in %.1f s", kind, name, delay, exc_info=error)
            if failed is not None:
                _tell(failed, error, delay)
            await self._sleep(delay)
            delay = min(2 * delay, _LAST_RETRY_SECONDS)


async def _outcome(work: Callable[[], Coroutine[Any, Any, None]]) -> BaseException | None:
    """How `work` ended: None where it just returned.

    Raises:
        asyncio.CancelledError: the task was told to end.
    """
    try:
        await work()
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return error  # of something that it waited for: nobody told this task to end
    except Exception as error:  # noqa: BLE001 - that is what this is for
        return error
    return None


def _tell(failed: Failed, error: BaseException | None, delay: float) -> None:
    try:
        failed(type(error).__name__ if error is not None else "it returned", delay)
    except Exception:  # noqa: BLE001 - it must not end what supervises
        _LOG.exception("telling of a failed task: a defect")
