"""The `workers` of the answer: what each worker does for its own pool, how long it has been idle, and what holds it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin

from .names import pool_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distributed.scheduler import Scheduler, WorkerState

    from .demand import Demand
    from .pools import Pools
    from .sick import Sick

WALK_SHARE = 0.02  # of the event loop's time may go into walking replicated tasks


class Workers:
    """Facts about workers, in O(workers)."""

    def __init__(self, scheduler: Scheduler, pools: Pools, demand: Demand, sick: Sick) -> None:
        self._scheduler = scheduler
        self._pools = pools
        self._demand = demand
        self._sick = sick
        self._idle_since: dict[str, float] = {}
        self._ended_then: dict[str, int] = {}  # worker's address -> own tasks that had ended at the last look
        self._held = Held(scheduler)

    def own(self, ws: WorkerState) -> int:
        """Return the tasks on the worker which are its pool's own: O(tasks on a fenced worker)."""
        if not self._is_counted(ws):
            return len(ws.processing)
        return sum(1 for ts in ws.processing if ts.resource_restrictions)

    def has_own(self, ws: WorkerState) -> bool:
        """Return whether there are any: the first task nearly always tells."""
        if not self._is_counted(ws):
            return bool(ws.processing)
        return any(ts.resource_restrictions for ts in ws.processing)

    def follow(self, now: float) -> frozenset[str]:
        """Bring the idle clocks up to date and return the addresses of the workers with work of their own."""
        busy = frozenset(ws.address for ws in self._scheduler.workers.values() if self.has_own(ws))
        worked = self._worked()  # a task may come and go between two looks
        self._idle_since = {
            address: now if address in worked else self._idle_since.get(address, now)
            for address in self._scheduler.workers
            if address not in busy
        }
        return busy

    def idle_since(self, address: str) -> float:
        """Return when the worker's own work ended; it changes only when there was some."""
        return self._idle_since.get(address, 0.0)

    def _worked(self) -> set[str]:
        """Return the addresses of the workers on which tasks of their own ended since the last look."""
        ended = self._demand.ended
        now = {
            ws.address: ended.restricted.get(ws.address, 0) if self._is_counted(ws) else ended.on(ws.address)
            for ws in self._scheduler.workers.values()
        }
        then, self._ended_then = self._ended_then, now
        return {address for address, n in now.items() if n != then.get(address, 0)}

    def _is_counted(self, ws: WorkerState) -> bool:
        """Return whether only restricted tasks are the worker's own."""
        return self._demand.is_counting and self._pools.is_fenced(ws)

    def rows(self, now: float) -> list[dict[str, Any]]:
        """Return one row for each worker, without what only the drain knows."""
        self.follow(now)
        only = self._held.only_copies()
        shuffling = in_shuffle(self._scheduler)
        return [self._row(ws, only[ws], shuffling, now) for ws in self._scheduler.workers.values()]

    def _row(self, ws: WorkerState, only: tuple[int, int], shuffling: set[WorkerState], now: float) -> dict[str, Any]:
        blockers = {
            "running": ws.processing,
            "actor": ws.actors,
            "shuffle": ws in shuffling,
            "data": only[0] and not self._has_neighbour(ws),
        }
        idle_since = self._idle_since.get(ws.address)
        return {
            "name": str(ws.name),
            "address": ws.address,
            "pool": pool_of(ws.name),
            "status": ws.status.name,
            "nthreads": ws.nthreads,
            "resources": dict(ws.resources),
            "processing": len(ws.processing),
            "own": self.own(ws),
            "idle_seconds": 0.0 if idle_since is None else now - idle_since,
            "blockers": [name for name, holds in blockers.items() if holds],
            "held_keys": only[0],
            "held_bytes": only[1],
            "retiring": "",
            "detail": describe(ws),
            "tasks_done": self._demand.ended.on(ws.address),
            "sick": self._sick.words(ws),
        }

    def _has_neighbour(self, ws: WorkerState) -> bool:
        """Return whether any other worker could take data: whether a value may go there is the drain's to find out."""
        return len(self._scheduler.running) > (ws in self._scheduler.running)


class Held:
    """Results of which a worker has the only copy.

    distributed knows the replicated tasks, not the single ones, so this walks the replicated, and rests afterwards in
    proportion to what the walk took: between walks an answer shows the last one's figures.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._shared: dict[WorkerState, tuple[int, int]] = {}
        self._rests_until = 0.0

    def only_copies(self) -> dict[WorkerState, tuple[int, int]]:
        """Return worker -> (keys, bytes) that it alone holds."""
        self._walk()
        found = {}
        for ws in self._scheduler.workers.values():
            keys, nbytes = self._shared.get(ws, (0, 0))
            found[ws] = max(0, len(ws.has_what) - keys), max(0, ws.nbytes - nbytes)
        return found

    def _walk(self) -> None:
        started = time.monotonic()
        if started < self._rests_until:
            return
        shared: dict[WorkerState, tuple[int, int]] = {}
        for ts in self._scheduler.replicated_tasks:
            for ws in ts.who_has or ():
                keys, nbytes = shared.get(ws, (0, 0))
                shared[ws] = keys + 1, nbytes + ts.get_nbytes()
        self._shared = shared
        ended = time.monotonic()
        if ended - started > 0.001:  # noqa: PLR2004 (seconds: shorter walks need no rest)
            self._rests_until = ended + (ended - started) / WALK_SHARE


def in_shuffle(scheduler: Scheduler, among: Iterable[WorkerState] | None = None) -> set[WorkerState]:
    """Return the workers, of all or `among` these, that a plugin says must stay.

    The P2P shuffle does: it restarts when a participant leaves.
    """
    everyone = list(scheduler.workers.values() if among is None else among)
    staying: set[WorkerState] = set()
    for plugin in list(scheduler.plugins.values()):
        asked = getattr(type(plugin), "valid_workers_downscaling", None)
        if asked is None or asked is SchedulerPlugin.valid_workers_downscaling:
            continue
        staying |= set(everyone) - set(plugin.valid_workers_downscaling(scheduler, everyone))
    return staying


def describe(ws: WorkerState) -> str:
    """Return words for people: what the worker is busy with."""
    words = []
    if ws.processing:
        words.append(_some("task", (ts.key for ts in ws.processing), len(ws.processing)))
    if ws.actors:
        words.append(_some("actor", (ts.key for ts in ws.actors), len(ws.actors)))
    return ", ".join(words)


def _some(kind: str, keys: Iterable[Any], n: int) -> str:
    first = str(next(iter(keys)))[:80]
    return f"{kind} {first}" + (f" and {n - 1} more" if n > 1 else "")
