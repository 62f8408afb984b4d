"""Steering: tasks that need a device ask for one by themselves, where the program does not say what they ask for.

Dask drops annotations round the lines that build a collection. Which tasks these are is found by `lowering.gpu_work`.
In Dask's configuration `gpudask.graphs.steer` says of which graphs: `all`, those that name one of
`gpudask.graphs.modules`, and those that the scheduler could not read for want of a device or module; `unreadable`,
these alone; or `none`.

Nobody is steered to what no pool offers: then tasks stay plain, as Dask has them.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import dask
from distributed.protocol.pickle import dumps

from ..pools import pool_of
from ..requirements import has_offer
from .lowering import GpuNames, gpu_work, materialize

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, WorkerState

    from ..pools import Pools
    from .opaque import LoweredGraph

MODULES = (
    *("cudf", "dask_cudf", "cupy", "cupyx", "cuml", "cugraph", "cuspatial", "cucim", "cuvs", "cuxfilter", "raft_dask"),
    *("pylibcudf", "pylibraft", "rmm", "numba_cuda", "numba.cuda"),
)
STEERED = ("none", "unreadable", "all")
_SUBMITS = re.compile(rb"(?<![a-z_])(?:worker_client|get_client|secede)(?![A-Za-z0-9_])")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


class Steering:
    """The settings, and what follows from them. Raises ValueError for one that is not as it should be."""

    def __init__(self, scheduler: Scheduler, pools: Pools) -> None:
        self._scheduler = scheduler
        self._pools = pools
        self._graphs = dask.config.get("gpudask.graphs.steer", "all")
        if self._graphs not in STEERED:
            raise ValueError(f"gpudask.graphs.steer: expected one of {', '.join(STEERED)}, got {self._graphs!r}")
        self.modules = _modules(dask.config.get("gpudask.graphs.modules", None))
        self.resources = _resources(dask.config.get("gpudask.graphs.resources", None))
        self._names = GpuNames(self.modules)

    @property
    def is_of_all(self) -> bool:
        """Whether all graphs are steered."""
        return bool(self._graphs == "all")

    @property
    def is_on(self) -> bool:
        """Whether any graph is steered."""
        return bool(self._graphs != "none")

    def steer(self, graph: LoweredGraph, on_gpu: list[Any], reader: WorkerState, message: dict[str, Any]) -> None:
        """Steer a graph that a worker has read, unless the program says for all of it what its tasks ask for.

        Where the reader itself does not offer it, nobody may: then the tasks stay plain.
        """
        if self.is_on and not _is_annotated(message) and has_offer(reader, self.resources):
            graph.steer(on_gpu, self.resources)

    def concerns(self, expr_ser: Any, message: dict[str, Any]) -> bool:
        """Return whether a graph that the scheduler can read is to be steered."""
        if not self.is_of_all or _is_annotated(message) or not self.is_offered():
            return False
        return any(self._names.are_in(_flat(frame)) for frame in expr_ser.frames)

    def is_offered(self) -> bool:
        """Return whether a pool of GPUs offers what is asked for, or any worker does."""
        of_pools = any(
            all(offers.get(name, 0) >= n for name, n in self.resources.items()) for offers in self._pools.gpu.values()
        )
        return of_pools or any(has_offer(ws, self.resources) for ws in self._scheduler.workers.values())

    def is_of_device(self, typename: str) -> bool:
        """Return whether the values of a type, as workers name it, lie on a device."""
        return any(typename.startswith(f"{module}.") for module in self.modules)

    def workers_for(self, function: Any) -> list[str] | None:
        """Return the workers that can run a pickled function which a client wants to run on all; None: every worker.

        These are the ones with a device, where it names a GPU module; none at all while the pools of GPUs are empty.
        """
        if not (self.is_of_all and isinstance(function, bytes) and self.is_offered() and self._names.are_in(function)):
            return None
        return [ws.address for ws in self._scheduler.workers.values() if self._has_device(ws)]

    def _has_device(self, ws: WorkerState) -> bool:
        """Return whether a worker offers a device of its own: one of another pool may lend what it has not."""
        is_lender = pool_of(ws.name) in self._pools.accepts and not self._pools.has_gpu(ws)
        return has_offer(ws, self.resources) and not is_lender

    def lower_and_steer(self, expr: Any, keys: set[Any], lowered: type[LoweredGraph]) -> LoweredGraph:
        """Lower a graph that was read here, and steer it, but for tasks that submit others and wait for them.

        A task keeps its device while it waits: those it waits for might never get one.
        """
        dsk, annotations = materialize(expr, keys)
        submitting = set()

        def pickled(key: Any) -> bytes:
            """Pickle one task, so that they are never there all together."""
            payload: bytes = dumps(dsk[key], buffer_callback=_left_out)  # type: ignore[no-untyped-call]
            if _SUBMITS.search(payload):
                submitting.add(key)
            return payload

        work = gpu_work(expr, dsk, pickled, list(self.modules))
        graph = lowered(dsk, annotations)
        graph.steer([key for key in work if key not in submitting], self.resources)
        return graph


def _is_annotated(message: dict[str, Any]) -> bool:
    annotations = message.get("annotations")
    return isinstance(annotations, dict) and "resources" in annotations


def _flat(frame: Any) -> Any:
    """Return the bytes of a frame, one by one."""
    view = memoryview(frame)
    return view.cast("B") if view.c_contiguous and view.nbytes and view.ndim else view.tobytes()


def _left_out(buffer: Any) -> None:
    """Leave data where it is: only names are looked at."""


def _modules(given: Any) -> tuple[str, ...]:
    if given is None:
        return MODULES
    is_list = isinstance(given, list | tuple) and bool(given)
    if not is_list or not all(isinstance(each, str) and _MODULE.fullmatch(each) for each in given):
        raise ValueError(f"gpudask.graphs.modules: expected a list of modules' names, got {given!r}")
    return tuple(given)


def _resources(given: Any) -> dict[str, float]:
    if given is None:
        return {"GPU": 1}
    is_right = isinstance(given, dict) and all(
        isinstance(name, str) and isinstance(n, int | float) and 0 < n < math.inf for name, n in given.items()
    )
    if not is_right:
        raise ValueError(f"gpudask.graphs.resources: expected names and numbers above zero, got {given!r}")
    return dict(given)
