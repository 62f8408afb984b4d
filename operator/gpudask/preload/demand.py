"""Demand: tasks that wait and run, by each distinct set of resource restrictions.

Restricted tasks are counted in `counts`. Plain tasks cost nothing: their counts are distributed's own totals by prefix,
less the restricted ones. Reading is O(changed tasks + requirements x prefixes), never O(tasks).

After a graph with many restricted tasks they are counted slice by slice. In between an answer shows those that are
counted, and the plain tasks as they were: those that are not counted yet would look like plain ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .counts import ACTIVE, BATCH, UNRUNNABLE, Counts, FinishedTasks
from .graphs.device_results import FOLLOWED
from .lookahead import Durations, LookAhead
from .part import Part
from .pools import pool_of
from .requirements import PLAIN, Requirement, is_ignored, requirement_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed.scheduler import Scheduler, TaskState

    from .busy_time import BusyTime
    from .drains.blockers import Actors, Pinned
    from .graphs.device_results import DeviceResults
    from .lookahead import Estimate
    from .pools import Pools
    from .watch import Watch

NEW = "new"  # topic of the watch: a requirement that no task had before
UNKNOWN_SECONDS = 0.5  # distributed's own guess for a task whose duration nobody knows
REST_SECONDS = 0.006  # of the event loop for others, between two slices of tasks to count


class Demand(Part):
    """Counts tasks by distributed's transitions: the `demand` of the answer."""

    feature = "demand"
    attributes = ("tasks", "task_prefixes", "workers", "running", "queued", "unrunnable", "replicated_tasks", "plugins")
    methods = MappingProxyType({"add_plugin": ("plugin",)})

    def __init__(
        self,
        scheduler: Scheduler,
        pools: Pools,
        watch: Watch,
        pinned: Pinned,
        busy_time: BusyTime,
        *,
        actors: Actors,
        device_results: DeviceResults,
    ) -> None:
        self._scheduler = scheduler
        self._tasks = scheduler.tasks  # the same for as long as the scheduler lives
        self._durations = Durations(pools)
        self._watch = watch
        self._pinned = pinned
        self._actors = actors
        self._busy_time = busy_time
        self._device_results = device_results
        self._counts = Counts(scheduler.tasks)
        self._counting: asyncio.TimerHandle | None = None  # the next slice, while there is more to count
        self._plain_then: Counter[tuple[str, str]] = Counter()  # plain tasks when all was counted last
        self._plain_unrunnable: int | None = None  # of them, how many found no worker; None where there were none
        self._plain_processing = 0
        self._unrunnable_since: dict[Requirement, float] = {}
        self._most: dict[Requirement, int] = {}  # the most bits of its unrunnable tasks since it had none
        self._most_active: dict[Requirement, int] = {}  # the same of those unrunnable or processing
        self.finished = FinishedTasks()
        self.look_ahead = LookAhead(scheduler, self._counts, self._durations, pools, watch)
        self.is_counting = False

    def start(self) -> None:
        """Count what is there already, since clients may have come before the preload."""
        self._counts.put_off_all(list(self._scheduler.tasks))
        self.is_counting = True

    def stop(self) -> None:
        """Count no more."""
        self.look_ahead.stop()
        if self._counting is not None:
            self._counting.cancel()

    def transition(
        self,
        key: Any,
        start: str,
        finish: str,
        /,  # each name that a keyword could have costs as much as a look at the task
        *_args: Any,
        worker: str = "",
        startstops: list[dict[str, Any]] | None = None,
        **_kwargs: Any,
    ) -> None:
        """Follow one transition. This runs several times for every task: it notes, and counts nothing."""
        ts = self._tasks[key]
        if finish in FOLLOWED:
            for each in self._device_results.follow(ts, finish):
                self._counts.changed[each.key] = None
        restricted = ts.resource_restrictions
        if restricted and (finish in ACTIVE or start in ACTIVE):
            counts = self._counts
            counts.changed[key] = None
            if finish == "no-worker" and counts.note_unrunnable(key, restricted):
                self._watch.publish(NEW)
            if len(counts.changed) >= BATCH:
                counts.put_off()
        if start == "processing" or finish == "processing":
            self._busy_time.follow(key, ts)
        pinned = self._pinned
        if ts.actor or ts.worker_restrictions or ts.host_restrictions or (pinned.kept and ts in pinned.kept):
            self._follow_blocker(ts)
        if startstops and finish == "memory":  # else it was not computed here
            self._finish(ts, worker, startstops)
        if not self._watch.is_check_due:
            self._watch.touch()

    def _follow_blocker(self, ts: TaskState) -> None:
        self._pinned.follow(ts)
        if ts.actor:
            self._actors.follow(ts)

    def _finish(self, ts: TaskState, worker: str, startstops: list[dict[str, Any]]) -> None:
        finished = self.finished
        if ts.resource_restrictions:
            finished.restricted[worker] += 1
            recently = finished.recently_restricted
        else:
            finished.plain[worker] += 1
            recently = finished.recently_plain
        learnt = ts.group, worker
        if learnt not in recently:
            recently.add(learnt)
            self._learn(ts.prefix.name, worker, startstops)

    def restart(self) -> None:
        """Forget all tasks, as the scheduler just did."""
        self._device_results.restart()
        self._counts.clear()
        self._pinned.clear()
        self._actors.clear()
        self._plain_then.clear()
        self._watch.touch()

    @property
    def is_behind(self) -> bool:
        """Whether not all tasks are counted yet: the figures may be a moment old."""
        return self._counting is not None

    @property
    def has_restricted(self) -> bool:
        """Whether any task that asks for a resource is counted."""
        return bool(self._counts.totals())

    def follow(self, now: float) -> dict[Requirement, tuple[int, int]]:
        """Bring the clocks up to date and return the edges of each requirement that has tasks: O(requirements).

        That is 0 while none is unrunnable, else how many bits their number has had at most since; and the same of those
        that are unrunnable or processing. Twice as many tasks are an edge, fewer and fewer are none until it is none.
        """
        self._count()
        totals = self._counts.totals()
        if self._counts.is_behind and self._counting is None:
            self._count_later()  # some of the tasks beyond all requirements have got room
        unrunnable = {requirement: sum(n[state] for state in UNRUNNABLE) for requirement, n in totals.items()}
        if not self.is_behind:  # else as it was: what is not counted yet would look like plain tasks
            scheduler = self._scheduler
            plain = max(0, len(scheduler.queued) + len(scheduler.unrunnable) - sum(unrunnable.values()))
            processing = sum(len(ws.processing) for ws in scheduler.workers.values())
            processing = max(0, processing - sum(n["processing"] for n in totals.values()))
            self._plain_unrunnable = plain if plain or processing else None
            self._plain_processing = processing
        active = {requirement: unrunnable[requirement] + n["processing"] for requirement, n in totals.items()}
        if self._plain_unrunnable is not None:
            unrunnable[PLAIN] = self._plain_unrunnable
            active[PLAIN] = self._plain_unrunnable + self._plain_processing
        unrunnable = {requirement: n for requirement, n in unrunnable.items() if not is_ignored(requirement)}
        self._most, self._most_active = _most(unrunnable, self._most), _most(active, self._most_active)
        self._unrunnable_since = {
            requirement: self._unrunnable_since.get(requirement, now) for requirement in self._most
        }
        return {each: (self._most.get(each, 0), self._most_active.get(each, 0)) for each in unrunnable}

    def ignored(self) -> list[dict[str, Any]]:
        """Return the `ignored` of the protocol, after `entries`."""
        return self._counts.ignored() if self.is_counting else []

    def _count(self) -> None:
        """Count what has changed: most often all of it, else a slice of it, and the rest soon."""
        if self._counting is not None:
            self._counts.count_first()
        elif not self._counts.count():
            self._count_later()

    def _count_later(self) -> None:
        self._counting = asyncio.get_running_loop().call_later(REST_SECONDS, self._on_slice)

    def _on_slice(self) -> None:
        self._counting = None
        if self._counts.count():
            self._watch.touch()
        else:
            self._count_later()

    def assigned(self) -> dict[Requirement, float]:
        """Return requirement -> mean seconds of a task, for the restricted tasks that workers have been given."""
        seconds: Counter[Requirement] = Counter()
        n: Counter[Requirement] = Counter()
        for bucket in self._counts.buckets():
            if bucket.state == "processing" and not is_ignored(bucket.requirement):
                mean = self._durations.mean(bucket.prefix, restricted=True)
                seconds[bucket.requirement] += bucket.n * (UNKNOWN_SECONDS if mean is None else mean)  # type: ignore[assignment]
                n[bucket.requirement] += bucket.n
        return {requirement: seconds[requirement] / n[requirement] for requirement in n}

    def entries(self, now: float) -> list[dict[str, Any]]:
        """Return the `demand` of the protocol: the restricted requirements in order, then plain demand."""
        if not self.is_counting:
            return []
        self.follow(now)
        longer = self._seconds_past_mean()
        by_requirement = self._restricted()
        if not self.is_behind:
            self._plain_then = self._plain(by_requirement)
        by_requirement = {asked: counts for asked, counts in by_requirement.items() if not is_ignored(asked)}
        by_requirement[PLAIN] = self._plain_then
        totals = self._counts.totals()
        waiting = [asked for asked in by_requirement if asked != PLAIN and totals[asked]["waiting"]]
        ahead = self.look_ahead.follow(waiting, now)
        order = [*sorted(by_requirement.keys() - {PLAIN}), PLAIN]
        entries = [
            self._entry(requirement, by_requirement[requirement], longer, now) | _next(ahead.get(requirement), now)
            for requirement in order
        ]
        return [entry for entry in entries if entry["waiting"] or entry["unrunnable"] or entry["processing"]]

    def _entry(
        self, requirement: Requirement, counts: Counter[tuple[str, str]], longer: dict[Requirement, float], now: float
    ) -> dict[str, Any]:
        by_state: Counter[str] = Counter()
        seconds, unknown = longer.get(requirement, 0.0), 0
        for (prefix, state), n in counts.items():
            by_state[state] += n
            if state == "waiting":
                continue
            mean = self._durations.mean(prefix, restricted=requirement != PLAIN)
            seconds += n * (mean or 0.0)
            unknown += n if mean is None else 0
        since = self._unrunnable_since.get(requirement)
        return {
            "resources": dict(requirement),
            "waiting": by_state["waiting"],
            "unrunnable": sum(by_state[state] for state in UNRUNNABLE),
            "processing": by_state["processing"],
            "seconds": seconds,
            "unknown": unknown,
            "since_seconds": 0.0 if since is None else now - since,
        }

    def _restricted(self) -> dict[Requirement, Counter[tuple[str, str]]]:
        """Return requirement -> (prefix, state) -> tasks."""
        found: dict[Requirement, Counter[tuple[str, str]]] = {}
        for bucket in self._counts.buckets():
            found.setdefault(bucket.requirement, Counter())[bucket.prefix, bucket.state] = bucket.n
        return found

    def _plain(self, restricted: dict[Requirement, Counter[tuple[str, str]]]) -> Counter[tuple[str, str]]:
        """Return distributed's own totals less the restricted tasks: (prefix, state) -> plain tasks."""
        counts: Counter[tuple[str, str]] = Counter()
        for prefix in self._scheduler.task_prefixes.values():
            states: dict[Any, int] = prefix.states
            for state in ACTIVE:
                if n := states.get(state, 0):
                    counts[prefix.name, state] = n
        for counted in restricted.values():
            counts.subtract(counted)
        return +counts

    def _seconds_past_mean(self) -> dict[Requirement, float]:
        """Return how much longer than their mean the running tasks have taken: a task's age is a lower bound."""
        longer: dict[Requirement, float] = {}
        for ts, elapsed_seconds in self._executing():
            requirement = requirement_of(ts)
            mean = self._durations.mean(ts.prefix.name, restricted=requirement != PLAIN)
            if mean is not None and elapsed_seconds > mean:
                longer[requirement] = longer.get(requirement, 0.0) + elapsed_seconds - mean
        return longer

    def _executing(self) -> Iterator[tuple[TaskState, float]]:
        """Yield what the workers' last heartbeats say: at most a worker's slots and its seceded tasks."""
        for ws in self._scheduler.workers.values():
            for ts, elapsed_seconds in ws.executing.items():
                if ts in ws.processing:
                    yield ts, elapsed_seconds

    def _learn(self, prefix: str, address: str, startstops: list[dict[str, Any]]) -> None:
        """Record a task's duration: of tasks that are many and short, the first after each check."""
        ws = self._scheduler.workers.get(address)
        self._durations.learn(prefix, pool_of(ws.name) if ws else "", startstops)
        self._durations.forget_vanished(self._scheduler.task_prefixes)


def _most(counts: dict[Requirement, int], before: dict[Requirement, int]) -> dict[Requirement, int]:
    """Return the bits of each count, or those it had `before` if they were more; one of 0 is left out."""
    return {requirement: max(n.bit_length(), before.get(requirement, 0)) for requirement, n in counts.items() if n}


def _next(estimate: Estimate | None, now: float) -> dict[str, Any]:
    seconds = estimate.left(now) if estimate is not None else None
    return {"next_seconds": seconds, "next_tasks": estimate.tasks if estimate is not None else 0}


class IdleTime:
    """Counts the seconds without a task that is not done, and without any transition of a task.

    It compares when it is read: what began and ended in between has moved the counter of transitions, and is taken to
    have ended now. So the time may be too short, never too long.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._transitions = -1
        self._since = 0.0

    def seconds(self, now: float, *, is_busy: bool) -> float | None:
        """Return for how many seconds nothing was to be done; None where this distributed counts no transitions.

        `is_busy`: whether there is a task that is not done.
        """
        transitions = getattr(self._scheduler, "transition_counter", None)
        if transitions is None:
            return None
        takes_in = getattr(self._scheduler, "_active_graph_updates", 0) > 0  # a graph that has no tasks yet
        if is_busy or takes_in or transitions != self._transitions:
            self._transitions, self._since = transitions, now
        return now - self._since
