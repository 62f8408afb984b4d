"""A worker's pool and pod, by its Dask name, and which tasks each pool accepts.

The rule for names is in `docs/preload-protocol.md`, under Names.
"""

from __future__ import annotations

import re
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from distributed.scheduler import WorkerState

_POOL = re.compile(r"^.+-([a-z][a-z0-9]*)-worker-")
NONE: Mapping[str, Any] = MappingProxyType({})


class Pools:
    """Pool -> accepts, and the pools with GPUs. A worker that is of no named pool accepts any task and has none.

    `gpu`: of those, what each of their workers offers, as far as the operator has said.
    """

    def __init__(self, accepts: dict[str, str], gpu: Mapping[str, Mapping[str, float]] = NONE) -> None:
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


@lru_cache(maxsize=100_000)
def pool_of(name: object) -> str:
    """Return the pool of the worker called `name`; `""` for a worker that is not ours."""
    found = _POOL.match(str(name))
    return found.group(1) if found else ""


def pods_of(name: object) -> tuple[str, ...]:
    """Return the pods that the worker called `name` could live in.

    Its worker is called exactly like a pod, or `<pod>-<i>` (dask-cuda, one process for each GPU).
    """
    text = str(name)
    pod, _, process = text.rpartition("-")
    return (text, pod) if pod and process.isdigit() else (text,)


def by_pod(workers: Iterable[WorkerState]) -> dict[str, list[WorkerState]]:
    """Return pod -> its workers, for every pod that a worker could live in."""
    found: dict[str, list[WorkerState]] = {}
    for ws in workers:
        for pod in pods_of(ws.name):
            found.setdefault(pod, []).append(ws)
    return found
