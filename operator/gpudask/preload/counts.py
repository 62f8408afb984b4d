"""Restricted tasks counted by what they ask for, by prefix and by state.

A transition only notes the task; whoever asks first has all noted tasks counted anew. So a task that went through
several states in between costs one count, and counting cannot drift: it is keyed by task, and looks at the task as it
is. (`count[start] -= 1; count[finish] += 1` drifts, because a transition may happen inside another.)
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed.scheduler import TaskState

ACTIVE = frozenset({"waiting", "queued", "no-worker", "processing"})
UNRUNNABLE = ("no-worker", "queued")

Requirement = tuple[tuple[str, float], ...]  # sorted (resource, quantity); () is plain
PLAIN: Requirement = ()


class Bucket:
    """How many tasks of one requirement, prefix and state there are."""

    __slots__ = ("n", "prefix", "requirement", "state", "totals")

    def __init__(self, requirement: Requirement, prefix: str, state: str, totals: dict[str, int]) -> None:
        self.requirement = requirement
        self.prefix = prefix
        self.state = state
        self.totals = totals  # the requirement's: state -> tasks
        self.n = 0

    def add(self, n: int) -> None:
        """Count `n` more tasks, here and in the requirement's totals."""
        self.n += n
        self.totals[self.state] += n


class Counts:
    """The counts. `changed` takes the tasks to count anew: key -> task."""

    def __init__(self) -> None:
        self.changed: dict[Any, TaskState] = {}
        self._buckets: dict[tuple[Requirement, str, str], Bucket] = {}
        self._totals: dict[Requirement, dict[str, int]] = {}
        self._by_key: dict[Any, Bucket] = {}  # in the order in which tasks came

    def count(self) -> None:
        """Count the changed tasks as they are now: O(changed)."""
        changed, self.changed = self.changed, {}
        by_key = self._by_key
        for key, ts in changed.items():
            old = by_key.get(key)
            new = self._bucket(ts) if ts.resource_restrictions and ts.state in ACTIVE else None
            if new is old:
                continue
            if old is not None:
                old.add(-1)
            if new is not None:
                new.add(1)
                by_key[key] = new
            else:
                del by_key[key]

    def clear(self) -> None:
        """Forget all tasks."""
        self.changed = {}
        self._buckets.clear()
        self._totals.clear()
        self._by_key.clear()

    def totals(self) -> dict[Requirement, dict[str, int]]:
        """Return requirement -> state -> tasks; a requirement without tasks is dropped first."""
        empty = [requirement for requirement, totals in self._totals.items() if not any(totals.values())]
        for requirement in empty:
            del self._totals[requirement]
        if empty:
            self._drop_empty_buckets()
        return self._totals

    def buckets(self) -> list[Bucket]:
        """Return what has tasks."""
        self._drop_empty_buckets()
        return list(self._buckets.values())

    def first_waiting(self, requirement: Requirement, n: int, look_at: int) -> Iterator[Any]:
        """Return the keys of the first `n` tasks whose inputs are missing, among the `look_at` that came first."""
        wanted = (
            key
            for key, bucket in itertools.islice(self._by_key.items(), look_at)
            if bucket.state == "waiting" and bucket.requirement == requirement
        )
        return itertools.islice(wanted, n)

    def _bucket(self, ts: TaskState) -> Bucket:
        restrictions: Any = ts.resource_restrictions
        requirement = tuple(restrictions.items())
        if len(requirement) > 1:
            requirement = tuple(sorted(requirement))
        name = requirement, ts.prefix.name, ts.state
        bucket = self._buckets.get(name)
        if bucket is None:
            totals = self._totals.setdefault(requirement, dict.fromkeys(ACTIVE, 0))
            bucket = self._buckets[name] = Bucket(*name, totals)
        return bucket

    def _drop_empty_buckets(self) -> None:
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if bucket.n}


def requirement_of(ts: TaskState) -> Requirement:
    """Return what a task asks for."""
    return tuple(sorted(ts.resource_restrictions.items())) if ts.resource_restrictions else PLAIN
