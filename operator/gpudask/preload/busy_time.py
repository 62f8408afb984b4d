"""Busy time: for how long each GPU worker has had work of its pool's own, and whose that was.

An owner is the Dask annotation `owner` of a task: `with dask.annotate(owner="team-a")`. Where tasks of several are on a
worker, a second is split evenly among those that came first, as many as the worker has threads: the others wait there.

A transition costs O(1): a task that comes or goes while others of its owner alone are there is only noted. distributed
moves some tasks without a transition, as stealing does: each answer compares, and notes anew what is on a worker whose
number of tasks is another.
"""

from __future__ import annotations

import itertools
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .part import Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from .desired import Desired
    from .pools import Pools

OWNERS = 20  # kept apart on a worker; the others count under ""
ROWS = 10_000  # pairs of a worker and an owner that are kept apart in all: the answer's size
OWNER_LENGTH = 63  # characters of a name, as of a label's value
LOOKED_AT = 4 * OWNER_LENGTH  # characters of a longer one
THREADS = 32  # of a worker, among whose tasks a second is split
REMEMBERED = 1000  # names that were cleaned


class _Row:
    """One worker: its own tasks in the order in which they came, and the seconds until `at`."""

    __slots__ = ("at", "counts", "foreign", "is_fenced", "owners", "seconds", "tasks", "ws")

    def __init__(self, ws: WorkerState, now: float) -> None:
        self.ws = ws
        self.is_fenced = False  # only restricted tasks are its pool's own
        self.at = now
        self.seconds = 0.0
        self.owners: dict[str, float] = {}
        self.tasks: dict[Any, str] = {}  # key -> owner
        self.counts: dict[str, int] = {}  # owner -> tasks
        self.foreign: set[Any] = set()  # keys of tasks that are not its pool's own

    def shares(self) -> dict[str, float]:
        """Return owner -> its part of the present second; empty while there is no work."""
        if len(self.counts) < 2:  # noqa: PLR2004 (one owner has all)
            return dict.fromkeys(self.counts, 1.0)
        threads = max(1, min(self.ws.nthreads, THREADS))
        first = list(itertools.islice(self.tasks.values(), threads))
        return {owner: first.count(owner) / len(first) for owner in dict.fromkeys(first)}


class BusyTime(Part):
    """Counts the seconds of the workers of GPU pools. It adds `busy_seconds` and `owners` to their rows."""

    attributes = ("workers",)
    depends_on = MappingProxyType({"demand": "transitions are not followed, since demand is off"})

    def __init__(self, scheduler: Scheduler, pools: Pools, clock: Callable[[], float] = time.monotonic) -> None:
        self._scheduler = scheduler
        self._pools = pools
        self._clock = clock
        self._rows: dict[str, _Row] = {}  # by address
        self._row_of: dict[Any, _Row] = {}  # by the key of a task that is on a worker
        self._pairs = 0  # of a worker and an owner
        self._names: dict[Any, str] = {}

    def start(self) -> None:
        """Count the workers that are there."""
        for ws in self._scheduler.workers.values():
            self.add_worker(ws)

    def apply(self, desired: Desired) -> dict[str, str]:  # noqa: ARG002 - `Pools` has them by now
        """Follow the pools that the operator wants: other ones may have GPUs, or accept other tasks."""
        for ws in self._scheduler.workers.values():
            row = self._rows.get(ws.address)
            if row is None:
                self.add_worker(ws)
            elif not self._pools.has_gpu(ws):
                self.remove_worker(ws.address)
            elif row.is_fenced != self._pools.is_fenced(ws):
                self._note_tasks(row)
        return {}

    def add_worker(self, ws: WorkerState) -> None:
        """Count a worker, if it is of a GPU pool."""
        if self._pools.has_gpu(ws):
            row = self._rows[ws.address] = _Row(ws, self._clock())
            self._note_tasks(row)

    def remove_worker(self, address: str) -> None:
        """Forget a worker that has gone."""
        row = self._rows.pop(address, None)
        if row is not None:
            self._pairs -= sum(1 for owner in row.owners if owner)
            self._drop_tasks(row)

    def restart(self) -> None:
        """Forget all tasks, as the scheduler just did."""
        now = self._clock()
        for row in self._rows.values():
            self._settle(row, now)
            self._drop_tasks(row)

    def follow(self, key: Any, ts: TaskState) -> None:
        """Follow a task that came to a worker, or left one: called on every transition to or from `processing`."""
        ws = ts.processing_on
        row = self._rows.get(ws.address) if ws is not None else None
        known = self._row_of.get(key)
        if row is known:
            return
        if known is not None:
            self._leave(known, key)
        if row is not None:
            self._enter(row, key, ts)

    def complete_workers(self, rows: list[dict[str, Any]]) -> None:
        """Add the counters of the GPU workers."""
        now = self._clock()
        for answer in rows:
            row = self._rows.get(answer["address"])
            if row is None:
                continue
            if len(row.ws.processing) != len(row.tasks) + len(row.foreign):
                self._note_tasks(row)
            self._settle(row, now)
            shares = row.shares()
            answer["busy_seconds"] = row.seconds
            answer["owners"] = [
                {"owner": owner, "seconds": seconds, "share": shares.get(owner, 0.0)}
                for owner, seconds in row.owners.items()
            ]

    def _enter(self, row: _Row, key: Any, ts: TaskState) -> None:
        self._row_of[key] = row
        if row.is_fenced and not ts.resource_restrictions:
            row.foreign.add(key)
            return
        counts = row.counts
        annotations = ts.annotations
        owner = self._owner(row, annotations.get("owner")) if annotations else ""
        if not counts:
            row.at = self._clock()  # until now there was nothing to count
            counts[owner] = 1
        elif owner in counts and len(counts) == 1:
            counts[owner] += 1  # nothing changes but their number
        else:
            self._settle(row, self._clock())
            counts[owner] = counts.get(owner, 0) + 1
        row.tasks[key] = owner

    def _leave(self, row: _Row, key: Any) -> None:
        del self._row_of[key]
        owner = row.tasks.get(key)
        if owner is None:
            row.foreign.discard(key)
            return
        counts = row.counts
        n = counts[owner] - 1
        if not n or len(counts) > 1:
            self._settle(row, self._clock())
        del row.tasks[key]
        if n:
            counts[owner] = n
        else:
            del counts[owner]

    def _note_tasks(self, row: _Row) -> None:
        """Note what is on a worker, in place of what was noted."""
        self._settle(row, self._clock())
        self._drop_tasks(row)
        row.is_fenced = self._pools.is_fenced(row.ws)
        for ts in row.ws.processing:
            known = self._row_of.get(ts.key)
            if known is not None:
                self._leave(known, ts.key)
            self._enter(row, ts.key, ts)

    def _drop_tasks(self, row: _Row) -> None:
        for key in (*row.tasks, *row.foreign):
            self._row_of.pop(key, None)
        row.tasks.clear()
        row.counts.clear()
        row.foreign.clear()

    def _settle(self, row: _Row, now: float) -> None:
        """Count the time until now, with the tasks that have been there."""
        passed, row.at = now - row.at, now
        counts, owners = row.counts, row.owners
        if not counts:
            return
        row.seconds += passed
        if len(counts) == 1:
            for owner in counts:
                owners[owner] = owners.get(owner, 0.0) + passed
        else:
            for owner, share in row.shares().items():
                owners[owner] = owners.get(owner, 0.0) + passed * share

    def _owner(self, row: _Row, given: Any) -> str:
        """Return the name under which the time of a task that is so annotated counts, and keep room for it."""
        name = self._name(given)
        if name in row.owners or not name:
            return name
        if len(row.owners) >= OWNERS or self._pairs >= ROWS:
            return ""
        row.owners[name] = 0.0
        self._pairs += 1
        return name

    def _name(self, given: Any) -> str:
        """Return an owner's name as it is told: one line of printable characters, `""` where it is no text."""
        if type(given) is not str:
            return ""
        if len(given) > LOOKED_AT:
            given = given[:LOOKED_AT]
        name = self._names.get(given)
        if name is None:
            if len(self._names) >= REMEMBERED:
                self._names.clear()
            shown = "".join(c if c.isprintable() else " " for c in given)
            name = self._names[given] = " ".join(shown.split())[:OWNER_LENGTH].strip()
        return name
