"""Has workers read graphs: asks one after the other, and is demand where none is there that could.

Who may read one is `Readers`': the order of workers, and what is demand where there is none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from distributed.protocol.pickle import loads
from distributed.utils import offload

from ..pools import pool_of
from ..requirements import PLAIN, Requirement, slots_of
from ..workers import result_of, run_on_worker
from .failures import Failure, GraphReadError, Kind, deadly, too_large, too_late
from .lowering import lower

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from distributed.scheduler import Scheduler, WorkerState

    from ..pools import Pools
    from ..watch import Watch

logger = logging.getLogger("gpudask.preload")

CHECK_SECONDS = 1.0  # how often who could read a graph is looked for, beside each worker that comes
DEATHS = 3  # workers that may go while they read one graph: it may be what kills them
ONE_GPU: Requirement = (("GPU", 1.0),)
_TRIES = 3  # workers of a pool that may lack a device: one of them may be at fault; a module, all lack that one does
_NEW = "graphs"  # topic of the watch


class Reading:
    """The graphs that workers read, and those that wait for one.

    `may_get_work` says whether a running worker should.
    """

    limit_seconds = 0.0  # for which a graph may wait for a worker
    limit_bytes = 0  # that its tasks may have, all together
    gpu = ONE_GPU  # what a worker with a device offers
    modules: tuple[str, ...] = ()  # by which tasks are judged to be GPU work

    def __init__(
        self, scheduler: Scheduler, pools: Pools, watch: Watch, may_get_work: Callable[[WorkerState], bool]
    ) -> None:
        self._scheduler = scheduler
        self._pools = pools
        self._watch = watch
        self._may_get_work = may_get_work
        self._changed = asyncio.Event()  # a worker has come
        self._waiting: dict[Requirement, list[float]] = {}  # what a reader has to offer -> since when each graph waits
        self._reading: Counter[Requirement] = Counter()

    def look_again(self) -> None:
        """Let the graphs that wait look at who is there."""
        self._changed.set()

    def complete_demand(self, entries: list[dict[str, Any]]) -> None:
        """Add the graphs as tasks of what their readers have to offer: they wait for a worker, or are processed."""
        now = time.monotonic()
        for requirement in self._waiting.keys() | +self._reading:
            since = self._waiting.get(requirement, [])
            entry = _entry_of(requirement, entries)
            entry["unrunnable"] += len(since)
            entry["processing"] += self._reading[requirement]
            entry["unknown"] += len(since) + self._reading[requirement]
            entry["since_seconds"] = max([entry["since_seconds"], *(now - at for at in since)])

    async def read(
        self, expr_ser: Any, keys: set[Any], here: Failure, *, is_ordered: bool
    ) -> tuple[bytes, WorkerState]:
        """Return what `lower` returns as `graph`, of the first worker that could read it, and who that is.

        Args:
            expr_ser: the graph, as the client has sent it.
            keys: what the client wants of it.
            here: why it could not be read by the scheduler.
            is_ordered: the client has ordered its tasks.

        Raises:
            GraphReadError: it cannot be read anywhere; `is_of_program` says whether that is its own fault.
        """
        readers = Readers(self._scheduler, self._pools, self._may_get_work, here, self.gpu)
        until = time.monotonic() + self.limit_seconds
        last, deaths = here, 0
        while deaths < DEATHS:
            demand = readers.demand()
            ws = readers.next()
            if ws is None:
                if demand is None:
                    raise GraphReadError(last.error, is_of_program=False)
                if not await self._wait(readers, demand, until):
                    raise GraphReadError(too_late(here, demand, self.limit_seconds))
                continue
            asking = self._ask(ws, demand or PLAIN, expr_ser, keys, is_ordered=is_ordered)
            answer = await _within(until - time.monotonic(), asking)
            if not isinstance(answer, dict) or answer.get("status") != "OK":
                logger.warning("gpudask: worker %s did not read a graph: %s", ws.address, str(answer)[:200])
                readers.failed(ws)
                deaths += 1
                if time.monotonic() > until:
                    raise GraphReadError(too_late(here, demand or PLAIN, self.limit_seconds))
                continue
            result = await offload(result_of, answer)
            if "graph" in result:
                return result["graph"], ws
            if "size" in result:
                raise GraphReadError(too_large(result["size"], self.limit_bytes))
            last = Failure.on_worker(result["error"], await offload(_exception, result["error"]["pickled"]))
            logger.info("gpudask: worker %s could not read a graph: %s", ws.address, last.text)
            if last.kind is Kind.OTHER or not last.is_of_reading:
                raise GraphReadError(last.error, is_of_program=not last.is_of_reading)
            readers.failed(ws)
        raise GraphReadError(deadly(here, DEATHS))

    async def _ask(
        self, ws: WorkerState, requirement: Requirement, expr_ser: Any, keys: set[Any], *, is_ordered: bool
    ) -> Any:
        """Ask a worker; return its answer, or why there is none."""
        self._reading[requirement] += 1
        self._watch.publish(_NEW)
        try:
            return await run_on_worker(
                self._scheduler,
                ws,
                lower,
                header=expr_ser.header,
                frames=await offload(_owned, expr_ser.frames),
                keys=keys,
                limit=self.limit_bytes,
                modules=list(self.modules),
                is_ordered=is_ordered,
            )
        except OSError as error:
            return error
        finally:
            self._reading[requirement] -= 1
            self._watch.publish(_NEW)

    async def _wait(self, readers: Readers, requirement: Requirement, until: float) -> bool:
        """Wait for a worker that could read a graph, or until it needs another one: that is demand.

        Return whether there was time enough.
        """
        since = time.monotonic()
        self._waiting.setdefault(requirement, []).append(since)
        self._watch.publish(_NEW)
        try:
            while readers.next() is None and readers.demand() == requirement:
                if time.monotonic() > until:
                    return False
                self._changed.clear()
                timer = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._changed.set)
                await self._changed.wait()
                timer.cancel()
            return True
        finally:
            self._waiting[requirement].remove(since)
            if not self._waiting[requirement]:
                del self._waiting[requirement]
            self._watch.publish(_NEW)


class Readers:
    """The workers that have failed to read one graph, and those that are left."""

    def __init__(
        self,
        scheduler: Scheduler,
        pools: Pools,
        may_get_work: Callable[[WorkerState], bool],
        failure: Failure,
        gpu: Requirement = ONE_GPU,
    ) -> None:
        self._scheduler = scheduler
        self._pools = pools
        self._may_get_work = may_get_work
        self._kind = failure.kind
        self._gpu = gpu
        self._failed: dict[str, int] = {}  # pool -> workers of it that could not read it
        self._tried: set[str] = set()

    def failed(self, ws: WorkerState) -> None:
        """Note that a worker could not read it."""
        self._tried.add(ws.address)
        pool = pool_of(ws.name)
        self._failed[pool] = self._failed.get(pool, 0) + 1

    def next(self) -> WorkerState | None:
        """Return the worker to ask next: of the pools most likely to have what is missing, the least busy."""
        needs_device = self._kind is Kind.DEVICE and any(not self._is_out(pool) for pool in self._pools.gpu)
        left = [
            ws
            for ws in self._scheduler.running
            if ws.address not in self._tried
            and not self._is_out(pool_of(ws.name))
            and (self._has_device(ws) or not needs_device)
            and self._may_get_work(ws)
        ]
        return min(left, key=self._order, default=None)

    def demand(self) -> Requirement | None:
        """Return what a worker has to offer that could read it; None where no pool could have one."""
        if self._kind is Kind.OTHER:
            return None
        pools = self._pools
        gpu = [pool for pool in pools.gpu if not self._is_out(pool)]
        plain = [pool for pool in pools.accepts if pool not in pools.gpu and not self._is_out(pool)]
        if self._kind is Kind.MODULE and (plain or not (pools.accepts or self._tried)):
            return PLAIN
        return self._gpu if gpu or not self._tried else None

    def _is_out(self, pool: str) -> bool:
        """Return whether a pool's workers have shown that they lack it, too."""
        most = 1 if self._kind is Kind.MODULE and pool else _TRIES
        return self._failed.get(pool, 0) >= most

    def _order(self, ws: WorkerState) -> tuple[bool, int, str]:
        return self._has_device(ws) is (self._kind is Kind.MODULE), len(ws.processing), ws.address

    def _has_device(self, ws: WorkerState) -> bool:
        return self._pools.has_gpu(ws) or slots_of(ws, self._gpu) > 0


async def _within(seconds: float, work: Coroutine[Any, Any, Any]) -> Any:
    """Return what `work` returns, or an error where it takes longer. It ends with the wait."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=max(seconds, CHECK_SECONDS))
        return task.result() if task.done() else TimeoutError("no answer in time")
    finally:
        task.cancel()


def _entry_of(requirement: Requirement, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the entry of a requirement, a new one where no task asks for that."""
    for entry in entries:
        if entry["resources"] == dict(requirement):
            return entry
    counts: dict[str, Any] = dict.fromkeys(("waiting", "unrunnable", "processing", "unknown", "next_tasks"), 0)
    new = {"resources": dict(requirement), "seconds": 0.0, "since_seconds": 0.0, "next_seconds": None} | counts
    entries.insert(len(entries) if requirement == PLAIN else 0, new)
    return new


def _owned(frames: list[Any]) -> list[bytes]:
    """Return what the network has brought, as something that can be pickled."""
    return [bytes(frame) for frame in frames]


def _exception(pickled: bytes) -> Exception | None:
    """Return a worker's exception; None where its type is missing here."""
    try:
        error = loads(pickled)  # type: ignore[no-untyped-call]
    except Exception:  # noqa: BLE001 (whatever the user's types raise)
        return None
    return error if isinstance(error, Exception) else None
