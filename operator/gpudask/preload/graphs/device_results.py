"""Results that lie on devices: a task that takes one runs where a device is, whatever the program says of it.

A worker without a device cannot even receive such a result: Dask asks for it again and again, and the task never ends.
Of a result the scheduler knows the name of its type. A container counts as its contents where its own constructor made
it, as `dask.delayed` does of several values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..requirements import has_offer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distributed.scheduler import TaskState

    from .steering import Steering

CONTAINERS = frozenset({"list", "tuple", "dict"})
_TYPES_KEPT = 10_000  # names of types: they are the program's


class DeviceResults:
    """Which results these are, and what takes them. It follows all transitions, and costs a look each."""

    def __init__(self) -> None:
        self._are_there = False  # whether there was any
        self._steering: Steering | None = None
        self._types: dict[str, bool] = {}

    def follow(self, steering: Steering) -> None:
        """Begin, with these settings."""
        self._steering = steering if steering.is_on else None
        self._types = {}

    def restart(self) -> None:
        """Forget all, as the scheduler just did."""
        self._are_there = False

    def steered(self, ts: TaskState, state: str) -> Iterable[TaskState]:
        """Follow a task that is in memory now, or waits; steer what has to run where a device is, and return that."""
        if state == "memory":
            if not self._is_on_device(ts):
                return ()
            self._are_there = True
            return [each for each in ts.waiters or () if self._steer(each, ts)]
        if self._are_there and any(self._is_on_device(each) and self._steer(ts, each) for each in ts.dependencies):
            return (ts,)
        return ()

    def _steer(self, ts: TaskState, source: TaskState) -> bool:
        """Let a task ask for what the holders of its source offer, unless the program says where it is to run."""
        assert self._steering is not None, "without steering no result is looked at"
        resources = self._steering.resources
        if ts.resource_restrictions or ts.worker_restrictions or ts.host_restrictions:
            return False
        if not any(has_offer(ws, resources) for ws in source.who_has or ()):
            return False
        ts.resource_restrictions = dict(resources)
        return True

    def _is_on_device(self, ts: TaskState) -> bool:
        name = ts.type or ""
        known = self._types.get(name)
        if known is None:
            known = self._learn(name)
        if known or name not in CONTAINERS or ts.prefix.name != name:
            return known
        return any(self._types.get(source.type or "") for source in ts.dependencies)

    def _learn(self, name: str) -> bool:
        if len(self._types) >= _TYPES_KEPT:
            self._types = {}
        self._types[name] = known = self._steering is not None and self._steering.is_of_device(name)
        return known
