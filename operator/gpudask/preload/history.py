"""The history of tasks: how many of each prefix ended, how long they computed, and the last that failed for good.

Counting costs nothing: distributed keeps totals by prefix itself, and they are read when somebody asks. Errors are
noted where distributed marks a task as erred, which is also where those end whose workers died under them.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections import deque
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .part import Part

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskPrefix, TaskState

logger = logging.getLogger("gpudask.preload")

PREFIXES, ERRORS = 50, 20
NAME_LENGTH, EXCEPTION_LENGTH, TRACEBACK_LENGTH = 253, 400, 4000  # characters


@dataclass(frozen=True)
class TaskError:
    """A task that failed for good; `at`: monotonic seconds."""

    at: float
    key: str
    exception: str
    traceback: str
    worker: str


class History(Part):
    """Reads distributed's totals, and keeps the last errors: the answer of the history route."""

    feature = "history"
    attributes = ("task_prefixes", "workers")
    methods = MappingProxyType({"_propagate_erred": ("worker", "cause", "exception_text", "traceback_text")})

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._errors: deque[TaskError] = deque(maxlen=ERRORS)
        self.erred = 0  # tasks that failed for good since the start, of which the last ones are kept

    def start(self) -> None:
        """Note tasks that fail where distributed marks them: no look at other transitions is needed."""
        self._propagate = self._scheduler._propagate_erred  # noqa: SLF001 - no hook tells of these alone
        self._scheduler._propagate_erred = self._on_erred  # type: ignore[method-assign]  # noqa: SLF001

    def answer(self, now: float) -> dict[str, Any]:
        """Return the body of the history route, without what all answers have: O(prefixes)."""
        prefixes = heapq.nlargest(PREFIXES, self._scheduler.task_prefixes.values(), key=_seconds)
        return {
            "scheduler_id": self._scheduler.id,
            "erred": self.erred,
            "tasks": [_row(prefix) for prefix in prefixes],
            "errors": [
                {
                    "age_seconds": now - error.at,
                    "key": error.key,
                    "exception": error.exception,
                    "traceback": error.traceback,
                    "worker": error.worker,
                }
                for error in self._errors
            ],
        }

    def _on_erred(self, ts: TaskState, *, cause: Any = None, worker: str | None = None, **more: Any) -> Any:
        """Note a task that failed itself, not one that needed it, then let the scheduler handle it."""
        if cause == ts.key:
            try:
                self._note(ts, worker or "", more)
            except Exception:
                logger.exception("gpudask: a failed task was not understood")
        return self._propagate(ts, cause=cause, worker=worker, **more)

    def _note(self, ts: TaskState, address: str, more: dict[str, Any]) -> None:
        self.erred += 1
        ws = self._scheduler.workers.get(address)
        text = str(more.get("exception_text") or "")
        if not text:  # made by the scheduler, not by a worker
            text = f"KilledWorker: the workers that ran it died, {ts.suspicious} of them"
        self._errors.append(
            TaskError(
                time.monotonic(),
                str(ts.key)[:NAME_LENGTH],
                text[:EXCEPTION_LENGTH],
                str(more.get("traceback_text") or "")[-TRACEBACK_LENGTH:],
                str(ws.name if ws is not None else address)[:NAME_LENGTH],
            )
        )


def _seconds(prefix: TaskPrefix) -> float:
    return float(prefix.all_durations.get("compute", 0.0))


def _row(prefix: TaskPrefix) -> dict[str, Any]:
    counts: dict[Any, int] = prefix.state_counts
    return {
        "prefix": str(prefix.name)[:NAME_LENGTH],
        "tasks": counts.get("memory", 0),
        "erred": counts.get("erred", 0),
        "seconds": _seconds(prefix),
    }
