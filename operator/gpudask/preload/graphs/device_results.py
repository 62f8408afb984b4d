"""Results that lie on devices: a task that takes one runs where a device is, unless the program says where it runs.

A worker without a device cannot receive such a result: Dask asks for it again and again, and the task never ends. Of a
result the scheduler knows its type's name. A container counts as its contents where its own constructor made it.
(`drains/gpu_results.py` asks the worker that holds a result, which is exact, and takes too long for each task.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..requirements import has_offer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distributed.scheduler import TaskState

    from .steering import Steering

FOLLOWED = frozenset({"memory", "waiting", "released", "forgotten"})  # states that a task comes into
_CONTAINERS = frozenset({"list", "tuple", "dict"})
_TYPES_KEPT, _NAME_LENGTH = 10_000, 200  # names of types: they are the program's


class DeviceResults:
    """The results on devices, and what takes them."""

    def __init__(self) -> None:
        self._steering: Steering | None = None
        self._types: dict[str, bool] = {}
        self._tasks: set[TaskState] = set()  # whose result lies on a device

    def begin(self, steering: Steering) -> None:
        """Look at results from now on, where all graphs are steered."""
        self._steering = steering if steering.is_of_all else None

    def restart(self) -> None:
        """Forget all, as the scheduler just did."""
        self._tasks.clear()

    def follow(self, ts: TaskState, state: str) -> Iterable[TaskState]:
        """Follow a task into one of the states `FOLLOWED`; steer what has to run where a device is, and return that."""
        if state == "waiting":
            if self._tasks.isdisjoint(ts.dependencies):
                return ()
            sources = self._tasks.intersection(ts.dependencies)
            return (ts,) if any(map(self._is_offered_by_holders, sources)) and self._steer(ts) else ()
        if state == "memory" and self._is_on_device(ts):
            self._tasks.add(ts)
            return [each for each in ts.waiters or () if self._steer(each)] if self._is_offered_by_holders(ts) else ()
        self._tasks.discard(ts)
        return ()

    def _steer(self, ts: TaskState) -> bool:
        assert self._steering is not None, "without steering no result is looked at"
        is_placed = (ts.worker_restrictions or ts.host_restrictions) and not ts.loose_restrictions
        if is_placed or ts.resource_restrictions is not None:
            return False
        ts.resource_restrictions = dict(self._steering.resources)
        return True

    def _is_offered_by_holders(self, source: TaskState) -> bool:
        resources = self._steering.resources if self._steering is not None else {}
        return any(has_offer(ws, resources) for ws in source.who_has or ())

    def _is_on_device(self, ts: TaskState) -> bool:
        name = ts.type
        if self._steering is None or ts.actor or not isinstance(name, str):
            return False
        if name in _CONTAINERS:
            return ts.prefix.name == name and not self._tasks.isdisjoint(ts.dependencies)
        known = self._types.get(name)
        return self._learn(name) if known is None else known

    def _learn(self, name: str) -> bool:
        assert self._steering is not None, "without steering no result is looked at"
        known = self._steering.is_of_device(name)
        if len(name) <= _NAME_LENGTH:
            if len(self._types) >= _TYPES_KEPT:
                self._types.clear()
            self._types[name] = known
        return known
