"""Blockers, which keep a worker from retiring: pinned tasks, actors, P2P shuffles, and what it is busy with.

*Pinned* are tasks that the user bound to workers or hosts, of which one worker alone is left to run them. It must not
close before them: a closed worker starts no task, and a removed one leaves them in `no-worker` for ever.

A shuffle has transfers, whose results lie with its participants under no key, then one barrier, then its outputs. When
the barrier is released, distributed ends the shuffle, and with it what was transferred.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin

from ..counts import ACTIVE
from ..requirements import is_ignored, requirement_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from collections.abc import Set as AbstractSet

    from distributed.scheduler import Scheduler, TaskState, WorkerState

Tasks = dict["TaskState", None]
Names = tuple[frozenset[str], frozenset[str]]  # addresses, and hosts
NOBODY: AbstractSet[str] = frozenset()

BARRIER = "shuffle-barrier-"  # and the shuffle's id: the key of its barrier (distributed/shuffle/_core.py)
LOOK_AT = 1_000  # bindings and tasks of a worker; beyond them one counts as pinned although it may have another place


class Named:
    """The bindings that have one name among theirs, and how many tasks they have together."""

    __slots__ = ("bindings", "n_tasks")

    def __init__(self) -> None:
        self.bindings: dict[Binding, None] = {}
        self.n_tasks = 0


class Binding:
    """Unfinished tasks that name the same workers and hosts and ask for the same: what one may do, all may."""

    __slots__ = ("asked", "named", "names", "tasks")

    def __init__(self, names: Names, asked: object, named: list[Named]) -> None:
        self.names = names
        self.asked = asked
        self.named = named  # one for each name
        self.tasks: Tasks = {}


Valid = dict[Binding, "Collection[WorkerState]"]


class Pinned:
    """Unfinished tasks with `workers=` that no other worker may do.

    A program may bind 10,000 tasks to the same 100 workers: they are kept by their binding, and that is judged once.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler: Any = scheduler
        self._bindings: dict[tuple[Names, object], Binding] = {}
        self._by_address: dict[str, Named] = {}
        self._by_host: dict[str, Named] = {}  # as users wrote them
        # Under which names each task is kept. Those of a task may change: a shuffle binds and frees its outputs.
        self.kept: dict[TaskState, Binding] = {}

    def follow(self, ts: TaskState) -> None:
        """Follow a task that has restrictions to workers or hosts, or is `kept`, as it is now."""
        workers, hosts = NOBODY, NOBODY
        if ts.state in ACTIVE and not ts.loose_restrictions:
            workers, hosts = ts.worker_restrictions or NOBODY, ts.host_restrictions or NOBODY
        before = self.kept.get(ts)
        if before is not None:
            if before.names == (workers, hosts):
                return
            self._drop(ts, before)
        if workers or hosts:
            self._keep(ts, (frozenset(workers), frozenset(hosts)))

    def clear(self) -> None:
        """Forget all tasks."""
        self.kept.clear()
        self._bindings.clear()
        self._by_address.clear()
        self._by_host.clear()

    def count(self, ws: WorkerState) -> int:
        """Return how many unfinished tasks name a worker, alone or among others: when that changes, look anew."""
        return sum(named.n_tasks for named in self._of(ws))

    def only_on(
        self, ws: WorkerState, retiring: Collection[WorkerState], valid: Valid | None = None
    ) -> TaskState | None:
        """Return a task that `ws` has not begun and no running worker that stays may do; None when there is none.

        What it has begun is known a heartbeat later. `valid`: who may do what, for callers that ask for many workers
        in the same moment.
        """
        valid = {} if valid is None else valid
        looked_at = 0
        for binding in itertools.chain.from_iterable(named.bindings for named in self._of(ws)):
            looked_at += 1
            ts = next(iter(binding.tasks))
            if binding not in valid:
                valid[binding] = self._valid(ts)
            if looked_at <= LOOK_AT and self._has_staying(valid[binding], retiring):
                continue
            for ts in binding.tasks:
                looked_at += 1
                has_begun = ts.processing_on is ws and (ts in ws.executing or ts in ws.long_running)
                if not has_begun or looked_at > LOOK_AT:
                    return ts
        return None

    def is_only_on(self, ts: TaskState, retiring: Collection[WorkerState]) -> bool:
        """Return whether no running worker that stays may do this task, because of its restrictions."""
        if ts.loose_restrictions or not (ts.worker_restrictions or ts.host_restrictions):
            return False
        return not self._has_staying(self._valid(ts), retiring)

    def _valid(self, ts: TaskState) -> Collection[WorkerState]:
        return self._scheduler.valid_workers(ts) or ()

    def _has_staying(self, workers: Collection[WorkerState], retiring: Collection[WorkerState]) -> bool:
        running = self._scheduler.running
        return any(ws not in retiring for ws in workers if ws in running)

    def _of(self, ws: WorkerState) -> list[Named]:
        """Return what is kept under each name of `ws`."""
        found = [named for host, named in self._by_host.items() if self._scheduler.coerce_hostname(host) == ws.host]
        if ws.address in self._by_address:
            found.append(self._by_address[ws.address])
        return found

    def _keep(self, ts: TaskState, names: Names) -> None:
        requirement = requirement_of(ts)
        # what those ask for that are no demand may differ
        asked: object = ts if is_ignored(requirement) else requirement
        binding = self._bindings.get((names, asked))
        if binding is None:
            named = [
                by_name.setdefault(name, Named())
                for by_name, some in zip((self._by_address, self._by_host), names, strict=True)
                for name in some
            ]
            binding = self._bindings[names, asked] = Binding(names, asked, named)
            for each in named:
                each.bindings[binding] = None
        self.kept[ts] = binding
        binding.tasks[ts] = None
        for each in binding.named:
            each.n_tasks += 1

    def _drop(self, ts: TaskState, binding: Binding) -> None:
        del self.kept[ts], binding.tasks[ts]
        for each in binding.named:
            each.n_tasks -= 1
        if not binding.tasks:
            del self._bindings[binding.names, binding.asked]
            for each in binding.named:
                del each.bindings[binding]
            for by_name, some in zip((self._by_address, self._by_host), binding.names, strict=True):
                for name in some:
                    if not by_name[name].n_tasks:
                        del by_name[name]


class Actors:
    """Which worker each actor lives on. What its other workers hold is a reference to it.

    distributed notes an actor where it was first sent, in `WorkerState.actors`, and neither moves that when the actor
    is stolen before it begins nor takes it back when it is released then. Where a worker goes it ends the actors that
    it noted there, also those of which the worker had a reference: so the note is corrected once an actor lives.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._homes: dict[TaskState, str] = {}  # address, of those that have begun
        self._by_home: dict[str, Tasks] = {}

    def follow(self, ts: TaskState) -> None:
        """Follow an actor, as it is now."""
        if ts.state != "memory":
            home = self._homes.pop(ts, None)
            if home is not None:
                del self._by_home[home][ts]
                if not self._by_home[home]:
                    del self._by_home[home]
        elif ts not in self._homes and ts.who_has:
            lives_on = next(iter(ts.who_has))
            self._homes[ts] = lives_on.address
            self._by_home.setdefault(lives_on.address, {})[ts] = None
            for ws in self._scheduler.workers.values():
                ws.actors.discard(ts)
            lives_on.actors.add(ts)

    def on(self, ws: WorkerState) -> list[TaskState]:
        """Return the actors that live on a worker, or begin there as far as distributed noted."""
        homes = self._homes
        others = [ts for ts in ws.actors if ts not in homes and (ts in ws.processing or ts in ws.has_what)]
        return [*self._by_home.get(ws.address, ()), *others]

    def remove_worker(self, address: str) -> None:
        """Forget the actors of a worker that has gone: where references are left they may count as being there."""
        for ts in self._by_home.pop(address, ()):
            del self._homes[ts]

    def clear(self) -> None:
        """Forget all actors."""
        self._homes.clear()
        self._by_home.clear()


def in_shuffle(scheduler: Scheduler, among: Collection[WorkerState] | None = None) -> set[WorkerState]:
    """Return the workers, of all or `among` these, that a plugin keeps, and those that have a barrier to run.

    The P2P shuffle's plugin does: it restarts when a participant leaves.
    """
    everyone: list[WorkerState] = []
    staying: set[WorkerState] = set()
    for plugin in list(scheduler.plugins.values()):
        method = getattr(type(plugin), "valid_workers_downscaling", None)
        if method is None or method is SchedulerPlugin.valid_workers_downscaling:
            continue
        everyone = everyone or list(scheduler.workers.values() if among is None else among)
        staying |= set(everyone) - set(plugin.valid_workers_downscaling(scheduler, everyone))
    barriers = (scheduler.tasks.get(f"{BARRIER}{shuffle}") for shuffle in active_shuffles(scheduler))
    return staying | {ts.processing_on for ts in barriers if ts is not None and ts.processing_on is not None}


def is_barrier(ts: TaskState) -> bool:
    """Return whether a task is the barrier of a shuffle."""
    return isinstance(ts.key, str) and ts.key.startswith(BARRIER)


def active_shuffles(scheduler: Scheduler) -> Collection[Any]:
    """Return the ids of the shuffles that run."""
    return getattr(scheduler.plugins.get("shuffle"), "active_shuffles", None) or ()


def activity_message(ws: WorkerState, actors: Actors) -> str:
    """Return a message: what the worker is busy with."""
    parts = []
    if ws.processing:
        parts.append(_first_of("task", (ts.key for ts in ws.processing), len(ws.processing)))
    if there := actors.on(ws):
        parts.append(_first_of("actor", (ts.key for ts in there), len(there)))
    return ", ".join(parts)


def pinned_message(ts: TaskState) -> str:
    """Return a message: why a worker has to stay."""
    return f"no other worker may run task {str(ts.key)[:80]}"


def _first_of(kind: str, keys: Iterable[Any], n: int) -> str:
    first = str(next(iter(keys)))[:80]
    return f"{kind} {first}" + (f" and {n - 1} more" if n > 1 else "")
