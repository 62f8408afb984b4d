"""Tasks that the user bound to workers or hosts, by the names which they gave: which of them wait for one worker alone.

A worker must not close before them: a closed worker starts no task, and a removed one leaves them in `no-worker` for
ever. Only tasks that are not done are kept, so this grows with them alone.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from .counts import ACTIVE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from distributed.scheduler import Scheduler, TaskState, WorkerState

LOOK_AT = 1_000  # tasks of a worker; beyond them one counts as pinned although it may have another place


class Pinned:
    """Unfinished tasks with `workers=` that no other worker may do."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler: Any = scheduler
        self._by_name: dict[str, dict[TaskState, None]] = {}  # worker's address or host, as written -> tasks

    def follow(self, ts: TaskState) -> None:
        """Take in a task with restrictions to workers or hosts, as it is now."""
        is_active = ts.state in ACTIVE and not ts.loose_restrictions
        for name in _names(ts):
            tasks = self._by_name.get(name)
            if is_active:
                if tasks is None:
                    tasks = self._by_name[name] = {}
                tasks[ts] = None
            elif tasks is not None and tasks.pop(ts, tasks) is None and not tasks:
                del self._by_name[name]

    def clear(self) -> None:
        """Forget all tasks."""
        self._by_name.clear()

    def count(self, ws: WorkerState) -> int:
        """Return how many unfinished tasks name a worker, alone or among others: when that changes, look anew."""
        return sum(len(self._by_name[name]) for name in self._names_of(ws))

    def only_on(self, ws: WorkerState, leaving: Collection[WorkerState]) -> TaskState | None:
        """Return a task that `ws` has not begun and no running worker that stays may do; None when there is none.

        What it has begun is known a heartbeat later.
        """
        tasks = itertools.chain.from_iterable(self._by_name[name] for name in self._names_of(ws))
        ts = None
        for ts in itertools.islice(tasks, LOOK_AT):
            has_begun = ts.processing_on is ws and (ts in ws.executing or ts in ws.long_running)
            if not has_begun and not self._has_place(ts, leaving):
                return ts
        return ts if next(tasks, None) is not None else None

    def is_only_on(self, ts: TaskState, leaving: Collection[WorkerState]) -> bool:
        """Return whether no running worker that stays may do this task, because of its restrictions."""
        if ts.loose_restrictions or not (ts.worker_restrictions or ts.host_restrictions):
            return False
        return not self._has_place(ts, leaving)

    def _has_place(self, ts: TaskState, leaving: Collection[WorkerState]) -> bool:
        return any(ws not in leaving for ws in self._scheduler.valid_workers(ts) or () if ws in self._scheduler.running)

    def _names_of(self, ws: WorkerState) -> list[str]:
        """Return the names under which users have bound tasks to `ws`."""
        hosts = [name for name in self._by_name if "://" not in name]
        names = [name for name in hosts if self._scheduler.coerce_hostname(name) == ws.host]
        return [ws.address, *names] if ws.address in self._by_name else names


def _names(ts: TaskState) -> Iterable[str]:
    return itertools.chain(ts.worker_restrictions or (), ts.host_restrictions or ())
