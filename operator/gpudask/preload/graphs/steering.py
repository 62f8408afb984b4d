"""Steering: tasks that need a device ask for one by themselves, where the program does not say what they ask for.

Dask drops annotations round the lines that build a collection. Which tasks these are is found by `lowering.gpu_work`.
In Dask's configuration `gpudask.graphs.steer` says of which graphs: `unreadable`, those that the scheduler could not
read for want of a device or module; `all`, also those that it can, and that name one of `gpudask.graphs.modules`; or
`none`.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import dask
from distributed.protocol.pickle import dumps

from ..requirements import has_offer
from .lowering import gpu_work, materialize

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState

    from .opaque import LoweredGraph

MODULES = (
    *("cudf", "dask_cudf", "cupy", "cupyx", "cuml", "cugraph", "cuspatial", "cucim", "cuvs", "cuxfilter", "raft_dask"),
    *("pylibcudf", "pylibraft", "rmm", "numba_cuda", "numba.cuda"),
)
STEERED = ("none", "unreadable", "all")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


class Steering:
    """The settings, and what follows from them. Raises ValueError for one that is not as it should be."""

    def __init__(self) -> None:
        self._graphs = dask.config.get("gpudask.graphs.steer", "unreadable")
        if self._graphs not in STEERED:
            raise ValueError(f"gpudask.graphs.steer: expected one of {', '.join(STEERED)}, got {self._graphs!r}")
        self.modules = _modules(dask.config.get("gpudask.graphs.modules", None))
        self.resources = _resources(dask.config.get("gpudask.graphs.resources", None))
        words = "|".join(map(re.escape, self.modules)).encode()
        self._named = re.compile(rb"(?<![a-z_])(?:" + words + rb")(?![A-Za-z0-9_])")

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
        is_concerned = (
            self._graphs == "all" and not _is_annotated(message) and any(map(self._named.search, expr_ser.frames))
        )
        return bool(is_concerned)

    def steered(self, expr: Any, keys: set[Any], lowered: type[LoweredGraph]) -> LoweredGraph:
        """Lower a graph that was read here, and steer it."""
        dsk, annotations = materialize(expr, keys)
        payloads = {key: dumps(node, buffer_callback=_left_out) for key, node in dsk.items()}  # type: ignore[no-untyped-call]
        graph = lowered(dsk, annotations)
        graph.steer(gpu_work(expr, dsk, payloads, list(self.modules)), self.resources)
        return graph


def _is_annotated(message: dict[str, Any]) -> bool:
    annotations = message.get("annotations")
    return isinstance(annotations, dict) and "resources" in annotations


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
