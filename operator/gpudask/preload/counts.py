"""Counts of restricted tasks by requirement, prefix and state; and of tasks that ended, by worker.

A transition only notes the task's key; the next reader has all noted tasks counted anew. So a task that went through
several states in between costs one count, and counting cannot drift: it is keyed by task, and looks at the task as it
is. (`count[start] -= 1; count[finish] += 1` drifts, because a transition may happen inside another.)

A graph may bring a million tasks at once, so counting goes slice by slice: what is not counted yet waits in batches,
and `is_behind` says so. What asks for something new and finds no worker is counted before the rest.

A requirement is the user's input, and hostile: what cannot be demand is counted on its own, as ignored (see
`requirements`).
"""

from __future__ import annotations

import itertools
import reprlib
import time
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

from .requirements import IGNORED, NAME_LENGTH, REQUIREMENTS, TOO_MANY, ignored, is_ignored, requirement_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from distributed.scheduler import TaskGroup, TaskState

    from .requirements import Requirement

ACTIVE = frozenset({"waiting", "queued", "no-worker", "processing"})
UNRUNNABLE = ("no-worker", "queued")

SLICE_SECONDS = 0.004  # of the event loop's CPU time that counting may take at one go
BATCH = 2_000  # tasks between two looks at the clock
FIRST = 100  # tasks that are counted before all others, because their requirement is new
RECOUNT_BELOW = REQUIREMENTS - 100  # when there are so few, those beyond are looked at again


class Bucket:
    """How many tasks of one requirement, prefix and state there are."""

    __slots__ = ("n", "prefix", "requirement", "state", "totals")

    def __init__(self, requirement: Requirement, prefix: str, state: str, totals: dict[str, int]) -> None:
        self.requirement = requirement
        self.prefix = prefix
        self.state = state
        self.totals = totals  # the requirement's: state -> tasks
        self.n = 0


Buckets = dict[str, Bucket]  # by state


class Counts:
    """The counts. `changed` takes the keys of the tasks to count anew, in the order in which they changed."""

    def __init__(self, tasks: Mapping[Any, TaskState]) -> None:
        self.changed: dict[Any, None] = {}
        self._tasks = tasks
        self._first: dict[Any, None] = {}  # keys that are counted before `changed`, and again with it
        self._batches: deque[Iterable[Any]] = deque()  # keys that changed before
        self._buckets: dict[tuple[Requirement, str], Buckets] = {}
        self._latest: dict[TaskGroup, tuple[Any, Buckets]] = {}  # what its last task asked for, to save time
        self._latest_new: Any = None
        self._totals: dict[Requirement, dict[str, int]] = {}
        self._by_key: dict[Any, Bucket] = {}  # in the order in which tasks came
        self._beyond: dict[Any, None] = {}  # keys of tasks counted as TOO_MANY
        self._examples: dict[str, str] = {}  # reason -> what such a task asks for
        self._dropped: list[dict[Any, Bucket]] = []  # large ones, which are taken apart slice by slice

    @property
    def is_behind(self) -> bool:
        """Whether there is more to count than went into the last slice."""
        return bool(self._batches)

    def put_off(self) -> None:
        """Begin another batch of changed tasks: each is counted, and freed, at one go."""
        self._batches.append(self.changed)
        self.changed = {}

    def put_off_all(self, keys: Iterable[Any]) -> None:
        """Count these tasks too, as far as they are restricted, when there is time. They are looked at only then."""
        self._batches.append(iter(keys))

    def note_unrunnable(self, key: Any, restrictions: Any) -> bool:
        """Count a task that finds no worker before all others, if its requirement is new; return whether so."""
        try:
            if restrictions == self._latest_new:
                return False
        except Exception:  # noqa: BLE001 (whatever a foreign type raises)
            return False
        self._latest_new = restrictions
        if len(self._first) >= FIRST or requirement_from(restrictions) in self._totals:
            return False
        self._first[key] = None
        return True

    def count(self, seconds: float = SLICE_SECONDS) -> bool:
        """Count the changed tasks as they are now, the last batch and then the oldest first; return whether all are.

        Most often all are, else it ends after about so many seconds, and there is more to do.
        """
        self.count_first()
        if self.changed:
            self._batches.appendleft(self.changed)
            self.changed = {}
        if not self._batches and not self._dropped:
            return True
        until = time.thread_time() + seconds
        while self._batches:
            batch = self._batches[0]
            if isinstance(batch, dict):
                self._count(batch)
                self._batches.popleft()
            elif not self._count_next(batch):
                self._batches.popleft()
            if self._batches and time.thread_time() > until:
                return False
        self._drop(until)
        return not self._dropped

    def count_first(self) -> None:
        """Count only those that ask for something new: they are few."""
        if self._first:
            first, self._first = self._first, {}
            self._count(first)

    def clear(self) -> None:
        """Forget all tasks."""
        self.changed = {}
        self._first = {}
        self._batches.clear()
        self._buckets.clear()
        self._latest.clear()
        self._totals.clear()
        self._beyond = {}
        self._dropped.append(self._by_key)
        self._by_key = {}

    def totals(self) -> dict[Requirement, dict[str, int]]:
        """Return requirement -> state -> tasks; a requirement without tasks is dropped first."""
        empty = [requirement for requirement, totals in self._totals.items() if not any(totals.values())]
        for requirement in empty:
            del self._totals[requirement]
        if empty:
            self._drop_empty_buckets()
            self._latest_new = None
            if self._beyond and len(self._totals) < RECOUNT_BELOW:
                beyond, self._beyond = self._beyond, {}
                self.put_off_all(beyond)  # there is room for some of them now
        return self._totals

    def buckets(self) -> list[Bucket]:
        """Return what has tasks."""
        self._drop_empty_buckets()
        return [bucket for buckets in self._buckets.values() for bucket in buckets.values()]

    def ignored(self) -> list[dict[str, Any]]:
        """Return the `ignored` of the protocol: an example, how many such tasks are not done, and why."""
        found = []
        for why in IGNORED:
            tasks = sum(self._totals.get(ignored(why), {}).values())
            if tasks:
                found.append({"resources": self._examples[why], "tasks": tasks, "why": why})
        return found

    def first_waiting(self, requirement: Requirement, n: int, look_at: int) -> Iterator[Any]:
        """Return the keys of the first `n` tasks whose inputs are missing, among the `look_at` that came first."""
        wanted = (
            key
            for key, bucket in itertools.islice(self._by_key.items(), look_at)
            if bucket.state == "waiting" and bucket.requirement == requirement
        )
        return itertools.islice(wanted, n)

    def _count_next(self, keys: Iterable[Any]) -> bool:
        """Count some of many keys that nobody has looked at; return whether there may be more."""
        try:
            some = list(itertools.islice(keys, BATCH))
        except RuntimeError:  # somebody else has changed what we iterate over; the tasks' transitions are noted anyway
            return False
        self._count(key for key in some if key in self._by_key or _is_restricted(self._tasks.get(key)))
        return len(some) == BATCH

    def _count(self, keys: Iterable[Any]) -> None:
        by_key, tasks, latest = self._by_key, self._tasks, self._latest
        # In place, because this runs for every restricted task: the bucket is nearly always the latest.
        for key in keys:
            ts, new = tasks.get(key), None
            restrictions = ts.resource_restrictions if ts is not None else None
            if ts is not None and restrictions:
                state = ts.state
                if state in ACTIVE:
                    known = latest.get(ts.group)
                    try:
                        if known is not None and known[0] == restrictions:
                            new = known[1].get(state)
                    except Exception:  # noqa: BLE001, S110 (whatever a foreign type raises)
                        pass
                    if new is None:
                        new = self._bucket(ts, state)
            old = by_key.get(key)
            if new is old:
                continue
            if old is not None:
                old.n -= 1
                old.totals[old.state] -= 1
            if new is not None:
                new.n += 1
                new.totals[new.state] += 1
                by_key[key] = new
            else:
                del by_key[key]
                self._beyond.pop(key, None)

    def _bucket(self, ts: TaskState, state: str) -> Bucket:
        requirement = self._requirement(ts)
        buckets = self._buckets.setdefault((requirement, ts.prefix.name), {})
        if requirement != ignored(TOO_MANY):
            if len(self._latest) >= REQUIREMENTS:
                self._latest.clear()
            self._latest[ts.group] = ts.resource_restrictions, buckets
        if state not in buckets:
            totals = self._totals.setdefault(requirement, dict.fromkeys(ACTIVE, 0))
            buckets[state] = Bucket(requirement, ts.prefix.name, state, totals)
        return buckets[state]

    def _requirement(self, ts: TaskState) -> Requirement:
        """Return what the task counts as."""
        requirement = requirement_from(ts.resource_restrictions)
        if requirement not in self._totals and len(self._totals) >= REQUIREMENTS and not is_ignored(requirement):
            requirement = ignored(TOO_MANY)
            self._beyond[ts.key] = None
        if is_ignored(requirement):
            self._examples[requirement[0][0]] = _shown(ts.resource_restrictions)
        return requirement

    def _drop_empty_buckets(self) -> None:
        self._latest.clear()
        for name, buckets in list(self._buckets.items()):
            for state in [state for state, bucket in buckets.items() if not bucket.n]:
                del buckets[state]
            if not buckets:
                del self._buckets[name]

    def _drop(self, until: float) -> None:
        while self._dropped:
            for _ in range(min(BATCH, len(self._dropped[-1]))):
                self._dropped[-1].popitem()
            if not self._dropped[-1]:
                self._dropped.pop()
            if time.thread_time() > until:
                return


def _is_restricted(ts: TaskState | None) -> bool:
    return ts is not None and bool(ts.resource_restrictions)


def _shown(restrictions: Any) -> str:
    try:
        return reprlib.repr(restrictions)[:NAME_LENGTH]
    except Exception:  # noqa: BLE001 (whatever a foreign type raises)
        return type(restrictions).__name__[:NAME_LENGTH]


class FinishedTasks:
    """How many tasks ended on each worker since it came, with a result or an error, plain and restricted ones.

    A worker that got a task and ended it between two checks has not been idle; the counts show that, too.
    """

    def __init__(self) -> None:
        self.plain: defaultdict[str, int] = defaultdict(int)
        self.restricted: defaultdict[str, int] = defaultdict(int)
        # (group, worker) of which a task ended since the last check: of many tasks the first is enough
        self.recently_plain: set[tuple[Any, str]] = set()
        self.recently_restricted: set[tuple[Any, str]] = set()

    def on(self, address: str) -> int:
        """Return all tasks that ended on a worker."""
        return self.plain.get(address, 0) + self.restricted.get(address, 0)

    def failed(self, address: str, *, restricted: bool) -> None:
        """Count a task that failed, whether it is tried again or not."""
        if restricted:
            self.restricted[address] += 1
            self.recently_restricted.add((None, address))
        else:
            self.plain[address] += 1
            self.recently_plain.add((None, address))

    def take_recent(self) -> tuple[set[str], set[str]]:
        """Return the workers on which plain and restricted tasks ended since the last call."""
        plain, restricted = self.recently_plain, self.recently_restricted
        self.recently_plain, self.recently_restricted = set(), set()
        return {address for _, address in plain}, {address for _, address in restricted}

    def remove_worker(self, address: str) -> None:
        """Forget a worker that has gone."""
        self.plain.pop(address, None)
        self.restricted.pop(address, None)
