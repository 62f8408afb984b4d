"""Which pool accepts plain tasks, and which work on a worker is its pool's own.

The one piece of the operator's word that every other part looks at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .names import pool_of

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState


class Pools:
    """Pool -> accepts, and the pools with GPUs. A worker that is of no named pool accepts any task and has none."""

    def __init__(self, accepts: dict[str, str], gpu: frozenset[str] = frozenset()) -> None:
        self.accepts = accepts
        self.gpu = gpu

    def is_fenced(self, ws: WorkerState) -> bool:
        """Return whether plain tasks are kept off this worker."""
        return self.accepts.get(pool_of(ws.name)) == "annotated"

    def has_gpu(self, ws: WorkerState) -> bool:
        """Return whether this worker may hold what only a GPU can."""
        return pool_of(ws.name) in self.gpu

    def is_fenced_pool(self, pool: str) -> bool:
        """Return whether plain tasks are kept off this pool's workers."""
        return self.accepts.get(pool) == "annotated"
