"""The `workers` of the answer: each worker's own work, idle time, finished tasks, only copies, and blockers."""

from __future__ import annotations

import asyncio
import itertools
import math
import sys
import time
from typing import TYPE_CHECKING, Any

import cloudpickle
from distributed.protocol.compression import decompress
from distributed.protocol.serialize import Serialized, merge_and_deserialize

from .drains.blockers import activity_message, in_shuffle, pinned_message
from .part import Part
from .pools import pool_of
from .requirements import NAME_LENGTH, NAMES

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from .demand import Demand
    from .device_health import DeviceHealth
    from .drains.blockers import Actors, Pinned, Valid
    from .pools import Pools

LOOKED_AT = 50  # tasks of a worker: of more, the others count as its pool's own
WALK_SHARE = 0.02  # of the event loop's time may go into walking replicated tasks
WALKED = 2_000  # of them at one go
SNAPSHOT = 500_000  # replicated tasks that are walked at all: the others count as only copies


class Workers(Part):
    """The `workers` of the answer, in O(workers)."""

    def __init__(
        self,
        scheduler: Scheduler,
        pools: Pools,
        demand: Demand,
        device_health: DeviceHealth,
        *,
        pinned: Pinned,
        actors: Actors,
    ) -> None:
        self._scheduler = scheduler
        self._pools = pools
        self._demand = demand
        self._pinned = pinned
        self._actors = actors
        self._device_health = device_health
        self._idle_since: dict[str, float] = {}
        self._only_copies = OnlyCopies(scheduler)

    def stop(self) -> None:
        """Walk no more."""
        self._only_copies.stop()

    def remove_worker(self, address: str) -> None:
        """Forget what ended and what lived on a worker that has gone."""
        self._demand.finished.remove_worker(address)
        self._actors.remove_worker(address)

    def own(self, ws: WorkerState) -> int:
        """Return the tasks on the worker which are its pool's own.

        A worker that is fenced has hardly any others. Where it has many tasks, those that are not looked at count as
        its own: it may seem to have more work than it has, and never to be idle when it is not.
        """
        processing = ws.processing
        if not processing or not self._is_counted(ws):
            return len(processing)
        return len(processing) - sum(
            1 for ts in itertools.islice(processing, LOOKED_AT) if not ts.resource_restrictions
        )

    def follow(self, now: float) -> frozenset[str]:
        """Bring the idle clocks up to date and return the addresses of the workers with work of their own."""
        plain, restricted = self._demand.finished.take_recent()  # a task may come and go between two checks
        then, self._idle_since = self._idle_since, {}
        busy = []
        for ws in self._scheduler.workers.values():
            address = ws.address
            if ws.processing and self.has_own(ws):
                busy.append(address)
            elif address in restricted or (address in plain and not self._is_counted(ws)):
                self._idle_since[address] = now
            else:
                self._idle_since[address] = then.get(address, now)
        return frozenset(busy)

    def idle_since(self, address: str) -> float:
        """Return when the worker's own work ended; it changes only when there was some."""
        return self._idle_since.get(address, 0.0)

    def has_own(self, ws: WorkerState) -> bool:
        """Return whether any of a worker's tasks are its pool's own: the first nearly always decides."""
        if not self._is_counted(ws):
            return bool(ws.processing)
        return len(ws.processing) > LOOKED_AT or any(ts.resource_restrictions for ts in ws.processing)

    def _is_counted(self, ws: WorkerState) -> bool:
        """Return whether only restricted tasks are the worker's own."""
        return self._demand.is_counting and self._pools.is_fenced(ws)

    def rows(self, now: float) -> list[dict[str, Any]]:
        """Return one row for each worker, without what only the drain knows."""
        self.follow(now)
        only = self._only_copies.only_copies()
        shuffling = in_shuffle(self._scheduler)
        valid: Valid = {}
        return [
            self._row(ws, only[ws.address], shuffling, self._pinned.only_on(ws, {ws}, valid), now)
            for ws in self._scheduler.workers.values()
        ]

    def _row(
        self,
        ws: WorkerState,
        only: tuple[int, int],
        shuffling: set[WorkerState],
        pinned: TaskState | None,
        now: float,
    ) -> dict[str, Any]:
        idle_since = self._idle_since.get(ws.address)
        blockers = []
        if ws.processing:
            blockers.append("running")
        if self._actors.on(ws):
            blockers.append("actor")
        if shuffling and ws in shuffling:
            blockers.append("shuffle")
        if pinned is not None:
            blockers.append("pinned")
        if only[0] and not self._has_neighbour(ws):
            blockers.append("data")
        return {
            "name": str(ws.name),
            "address": ws.address,
            "pool": pool_of(ws.name),
            "status": ws.status.name,
            "nthreads": ws.nthreads,
            "resources": _amounts(ws.resources) if ws.resources else {},
            "processing": len(ws.processing),
            "own": self.own(ws),
            "idle_seconds": 0.0 if idle_since is None else now - idle_since,
            "blockers": blockers,
            "held_keys": only[0],
            "held_bytes": only[1],
            "retiring": "",
            "detail": activity_message(ws, self._actors) or (pinned_message(pinned) if pinned is not None else ""),
            "tasks_done": self._demand.finished.on(ws.address),
            "sick": self._device_health.message(ws),
        }

    def _has_neighbour(self, ws: WorkerState) -> bool:
        """Return whether any other worker could take data: whether a value may go there is the drain's to find out."""
        return len(self._scheduler.running) > (ws in self._scheduler.running)


class OnlyCopies:
    """Results of which a worker has the only copy.

    distributed knows the replicated tasks, not the single ones, so this walks the replicated: few at one go, more slice
    by slice with rests in proportion. Between walks an answer shows the last one's figures.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._shared: dict[str, tuple[int, int]] = {}  # worker's address -> its keys that others have too, their bytes
        self._next: dict[str, tuple[int, int]] = {}  # the same, of a walk that has not ended
        self._left: list[TaskState] = []  # what it has not walked yet
        self._timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Walk no more."""
        if self._timer is not None:
            self._timer.cancel()

    def only_copies(self) -> dict[str, tuple[int, int]]:
        """Return worker's address -> (keys, bytes) that it alone holds."""
        if self._timer is None:
            self._left = list(itertools.islice(self._scheduler.replicated_tasks, SNAPSHOT))
            self._walk()
        found = {}
        for ws in self._scheduler.workers.values():
            keys, nbytes = self._shared.get(ws.address, (0, 0))
            found[ws.address] = max(0, len(ws.has_what) - keys), max(0, ws.nbytes - nbytes)
        return found

    def _walk(self) -> None:
        """Walk some of what is left; the figures change once all is."""
        self._timer = None
        started = time.thread_time()
        shared = self._next
        for _ in range(min(WALKED, len(self._left))):
            ts = self._left.pop()
            for ws in ts.who_has or ():
                keys, nbytes = shared.get(ws.address, (0, 0))
                shared[ws.address] = keys + 1, nbytes + ts.get_nbytes()
        if not self._left:
            self._shared, self._next = shared, {}
        seconds = time.thread_time() - started
        if seconds > 0.001:  # noqa: PLR2004 (shorter walks need no rest)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds / WALK_SHARE, self._walk if self._left else self._rested)

    def _rested(self) -> None:
        self._timer = None


def _amounts(resources: dict[Any, Any]) -> dict[str, float]:
    """Return what a worker offers, as far as JSON has numbers for it: it is the user's input, too."""
    return {
        str(name)[:NAME_LENGTH]: amount
        for name, amount in itertools.islice(resources.items(), NAMES)
        if isinstance(amount, (int, float)) and math.isfinite(amount)
    }


async def run_on_worker(scheduler: Scheduler, ws: WorkerState, function: Any, **arguments: Any) -> Any:
    """Run one of our coroutine functions on a worker; return what the worker answers: a dict, or an error's text.

    The function travels with its module, so that the worker needs nothing of ours; it may use nothing else of ours.
    """
    module = sys.modules[function.__module__]
    cloudpickle.register_pickle_by_value(module)
    try:
        pickled = bytes(cloudpickle.dumps(function))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    message = {"op": "run_coroutine", "function": pickled, "kwargs": cloudpickle.dumps(arguments), "wait": True}
    answers = await scheduler.broadcast(msg=message, workers=[ws.address], on_error="return")
    return answers.get(ws.address)


def result_of(answer: dict[str, Any]) -> Any:
    """Return what the function returned, of an answer whose status is `OK`.

    Between hosts Dask compresses what is sent, as configured, and over UCX always. More than 64 MiB it sends in pieces.
    """
    result = answer["result"]
    if isinstance(result, Serialized):
        header, frames = result.header, result.frames
        if "compression" in header:
            frames = decompress(header, frames)
        result = merge_and_deserialize(header, frames)  # type: ignore[no-untyped-call]
    return result
