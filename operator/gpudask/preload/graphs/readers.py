"""Who may read a graph that the scheduler cannot: the order of workers, and what is demand where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..pools import pool_of
from ..requirements import PLAIN, Requirement, slots_of
from .failures import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed.scheduler import Scheduler, WorkerState

    from ..pools import Pools
    from .failures import Failure

ONE_GPU: Requirement = (("GPU", 1.0),)
_TRIES = 3  # workers of a pool that may lack a device: one of them may be at fault; a module, all lack that one does


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
