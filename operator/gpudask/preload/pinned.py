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
Names = tuple[frozenset[str], frozenset[str]]  # addresses, and hosts
NOWHERE: Names = (frozenset(), frozenset())

LOOK_AT = 1_000  # tasks of a worker; beyond them one counts as pinned although it may have another place


class Pinned:
    """Unfinished tasks with `workers=` that no other worker may do."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler: Any = scheduler
        self._by_address: dict[str, Tasks] = {}
        self._by_host: dict[str, Tasks] = {}  # as users wrote them
        # Under which names each task is kept. Those of a task may change: a shuffle binds and frees its outputs.
        self.kept: dict[TaskState, Names] = {}

    def follow(self, ts: TaskState) -> None:
        """Take in a task that has restrictions to workers or hosts, or is `kept`, as it is now."""
        now = NOWHERE
        if ts.state in ACTIVE and not ts.loose_restrictions:
            now = frozenset(ts.worker_restrictions or ()), frozenset(ts.host_restrictions or ())
        before = self.kept.pop(ts, NOWHERE)
        if now != NOWHERE:
            self.kept[ts] = now
        if now != before:
            for by_name, old, new in zip((self._by_address, self._by_host), before, now, strict=True):
                _move(ts, by_name, old - new, new - old)

    def clear(self) -> None:
        """Forget all tasks."""
        self.kept.clear()
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


def _move(ts: TaskState, by_name: dict[str, Tasks], out_of: Iterable[str], into: Iterable[str]) -> None:
    for name in out_of:
        del by_name[name][ts]
        if not by_name[name]:
            del by_name[name]
    for name in into:
        by_name.setdefault(name, {})[ts] = None
