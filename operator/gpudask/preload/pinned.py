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

Tasks = dict["TaskState", None]

LOOK_AT = 1_000  # tasks of a worker; beyond them one counts as pinned although it may have another place


class Pinned:
    """Unfinished tasks with `workers=` that no other worker may do."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler: Any = scheduler
        self._by_address: dict[str, Tasks] = {}
        self._by_host: dict[str, Tasks] = {}  # as users wrote them

    def follow(self, ts: TaskState) -> None:
        """Take in a task with restrictions to workers or hosts, as it is now."""
        is_active = ts.state in ACTIVE and not ts.loose_restrictions
        if ts.worker_restrictions:
            _follow(ts, self._by_address, ts.worker_restrictions, is_active=is_active)
        if ts.host_restrictions:
            _follow(ts, self._by_host, ts.host_restrictions, is_active=is_active)

    def clear(self) -> None:
        """Forget all tasks."""
        self._by_address.clear()
        self._by_host.clear()

    def count(self, ws: WorkerState) -> int:
        """Return how many unfinished tasks name a worker, alone or among others: when that changes, look anew."""
        return sum(len(tasks) for tasks in self._of(ws))

    def only_on(self, ws: WorkerState, leaving: Collection[WorkerState]) -> TaskState | None:
        """Return a task that `ws` has not begun and no running worker that stays may do; None when there is none.

        What it has begun is known a heartbeat later.
        """
        tasks = itertools.chain.from_iterable(self._of(ws))
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

    def _of(self, ws: WorkerState) -> list[Tasks]:
        """Return the tasks that name `ws`, by each name."""
        found = [tasks for host, tasks in self._by_host.items() if self._scheduler.coerce_hostname(host) == ws.host]
        if ws.address in self._by_address:
            found.append(self._by_address[ws.address])
        return found


def _follow(ts: TaskState, by_name: dict[str, Tasks], names: Iterable[str], *, is_active: bool) -> None:
    for name in names:
        tasks = by_name.get(name)
        if is_active:
            if tasks is None:
                tasks = by_name[name] = {}
            tasks[ts] = None
        elif tasks is not None:
            tasks.pop(ts, None)
            if not tasks:
                del by_name[name]
