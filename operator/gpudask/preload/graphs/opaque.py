"""Tasks whose contents the scheduler does not know: it knows keys, dependencies and annotations; the rest are bytes.

Pickling such a task for a worker, or for a client that asks for it, gives the original. A barrier of a P2P shuffle
stays one, since the scheduler's plugin reads its spec; only the `meta` in it, an empty frame, is opaque.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import pickle
from typing import TYPE_CHECKING, Any

from dask._task_spec import GraphNode
from distributed.protocol.serialize import Serialized, serialize
from distributed.shuffle._core import P2PBarrierTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .lowering import Row

_handed: dict[int, Callable[[], Any]] = {}  # what the scheduler's own code is to find in place of a graph
_numbers = itertools.count()


class OpaqueTask(GraphNode):
    """A task as bytes."""

    __slots__ = ("_data_producer", "buffers", "payload")

    def __init__(
        self, key: Any, dependencies: frozenset[Any], payload: bytes, buffers: tuple[bytes, ...], *, data_producer: bool
    ) -> None:
        self.key = key
        self._dependencies = dependencies
        self.payload = payload
        self.buffers = buffers
        self._data_producer = data_producer

    @property
    def data_producer(self) -> bool:
        """Whether it only makes data, as the original says."""
        return self._data_producer

    def __reduce__(self) -> tuple[Any, ...]:
        return _load(self.payload, self.buffers)

    def __call__(self, values: Any = ()) -> Any:  # noqa: ARG002 (as all nodes have it)
        """Refuse: its contents are not known here."""
        raise RuntimeError(f"{self!r} can run on a worker only")

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __sizeof__(self) -> int:
        return len(self.payload)  # several may share a buffer

    def __repr__(self) -> str:
        return f"OpaqueTask({self.key!r})"


class OpaqueBarrier(P2PBarrierTask):
    """The barrier of a P2P shuffle, with its spec."""

    __slots__ = ("buffers", "payload")

    def __init__(
        self, key: Any, dependencies: frozenset[Any], payload: bytes, buffers: tuple[bytes, ...], *, spec: Any
    ) -> None:
        self.key = key
        self._dependencies = dependencies
        self.payload = payload
        self.buffers = buffers
        self.spec = spec

    @property
    def data_producer(self) -> bool:
        """Whether it only makes data."""
        return False

    def __reduce__(self) -> tuple[Any, ...]:
        return _load(self.payload, self.buffers)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __sizeof__(self) -> int:
        return len(self.payload)

    def __repr__(self) -> str:
        return f"OpaqueBarrier({self.key!r})"


class OpaqueValue:
    """A value as bytes: whoever unpickles it has the original."""

    __slots__ = ("payload",)

    def __init__(self, payload: bytes) -> None:
        self.payload = payload

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self.payload,)


class LoweredGraph:
    """Stands for an expression that a worker has lowered: distributed asks it for its tasks and annotations."""

    def __init__(self, tasks: dict[Any, GraphNode], annotations: dict[str, dict[Any, Any]]) -> None:
        self._tasks = tasks
        self._annotations = annotations

    def __dask_graph__(self) -> dict[Any, GraphNode]:
        return self._tasks

    def __dask_annotations__(self) -> dict[str, dict[Any, Any]]:
        return self._annotations

    def steer(self, keys: Iterable[Any], resources: dict[str, float]) -> None:
        """Let these tasks ask for resources, but for those of which the program says what they ask for."""
        asked = self._annotations.setdefault("resources", {})
        for key in keys:
            asked.setdefault(key, resources)

    @classmethod
    def read(cls, graph: bytes) -> tuple[LoweredGraph, list[Any], dict[Any, int] | None]:
        """Return what `lowering.lower` returned as `graph`, the keys of its GPU work, and the order, if it has one."""
        rows, contents, annotations, on_gpu, order = pickle.loads(graph)  # noqa: S301 (of a worker: it runs users' code)
        return cls({row[0]: _task(row, contents) for row in rows}, annotations), on_gpu, order


class FailedGraph:
    """Stands for an expression that cannot be lowered: whoever asks for its tasks gets the error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __dask_graph__(self) -> dict[Any, GraphNode]:
        raise self._error


def hand_over(get: Callable[[], Any]) -> Serialized:
    """Return what `deserialize` makes the result of `get` of, once, in this process: it may raise."""
    number = next(_numbers)
    _handed[number] = get
    return Serialized(*serialize(_Handed(number), serializers=["pickle"]))  # type: ignore[no-untyped-call]


class _Handed:
    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _claim, (self._number,)


def _claim(number: int) -> Any:
    return _handed.pop(number)()


def _load(payload: bytes, buffers: tuple[bytes, ...]) -> tuple[Any, ...]:
    load = functools.partial(pickle.loads, buffers=buffers) if buffers else pickle.loads
    return load, (payload,)


def _task(row: Row, contents: list[bytes]) -> GraphNode:
    key, dependencies, payload, refers, data_producer, barrier = row
    buffers = tuple(contents[i] for i in refers)
    if barrier is None:
        return OpaqueTask(key, frozenset(dependencies), payload, buffers, data_producer=data_producer)
    spec = pickle.loads(barrier[0])  # noqa: S301 (as above)
    if barrier[1] is not None:
        spec = dataclasses.replace(spec, meta=OpaqueValue(barrier[1]))
    return OpaqueBarrier(key, frozenset(dependencies), payload, buffers, spec=spec)
