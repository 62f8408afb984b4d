"""How much work waits and runs, for each distinct set of resource restrictions.

Restricted tasks are counted one by one, keyed by task, on transitions: `count[start] -= 1; count[finish] += 1` drifts,
because a transition may happen inside another. Plain tasks cost nothing: their counts are distributed's own totals by
prefix, less the restricted ones. Reading is O(requirements x prefixes), never O(tasks).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from distributed.diagnostics.plugin import SchedulerPlugin

from .names import pool_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from .durations import Durations

ACTIVE = frozenset({"waiting", "queued", "no-worker", "processing"})
UNRUNNABLE = ("no-worker", "queued")
PREFIXES = 10_000  # remembered means before those of vanished prefixes are dropped

Requirement = tuple[tuple[str, float], ...]  # sorted (resource, quantity); () is plain
PLAIN: Requirement = ()


class Counted(NamedTuple):
    """How one restricted task is counted at present."""

    requirement: Requirement
    prefix: str
    state: str
    worker: WorkerState | None


class Demand(SchedulerPlugin):
    """The counters, kept by distributed's transitions; `touched` is told of each of them."""

    name = "gpudask-demand"

    def __init__(self, scheduler: Scheduler, durations: Durations, touched: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._durations = durations
        self._touched = touched
        self._by_key: dict[Any, Counted] = {}
        self._counts: dict[Requirement, Counter[tuple[str, str]]] = {}  # -> (prefix, state) -> tasks
        self._totals: Counter[tuple[Requirement, str]] = Counter()
        self._unrunnable_since: dict[Requirement, float] = {}
        self.own: Counter[WorkerState] = Counter()  # restricted tasks in processing, by worker
        self.worked: set[WorkerState] = set()  # those that were given a restricted task since somebody cleared this
        self.worked_plain: set[WorkerState | None] = set()
        self.is_counting = False

    def hook_in(self) -> None:
        """Count what is there already, since clients may have come before the preload, and follow from now on."""
        for ts in self._scheduler.tasks.values():
            if ts.resource_restrictions:
                self.recount(ts)
        self._scheduler.add_plugin(self)
        self.is_counting = True

    def transition(self, key: Any, start: str, finish: str, *_args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Follow one transition: this runs for every task, so plain ones leave early."""
        ts = self._scheduler.tasks[key]
        if ts.resource_restrictions or key in self._by_key:
            self.recount(ts)
        elif finish == "processing":
            self.worked_plain.add(ts.processing_on)
        if finish == "memory" and kwargs.get("startstops"):
            self._learn(ts, kwargs["worker"], kwargs["startstops"])
        self._touched()

    def recount(self, ts: TaskState) -> None:
        """Count a task as it is now: also for what changes without a transition, a stolen task's worker."""
        new = None
        if ts.resource_restrictions and ts.state in ACTIVE:
            requirement = tuple(sorted(ts.resource_restrictions.items()))
            new = Counted(requirement, ts.prefix.name, ts.state, ts.processing_on)
        old = self._by_key.get(ts.key)
        if old is not None:
            self._add(old, -1)
        if new is not None:
            self._add(new, 1)
            self._by_key[ts.key] = new
        elif old is not None:
            del self._by_key[ts.key]

    def stolen(self, key: Any) -> None:
        """Recount a task that work stealing may have moved; it changes `processing_on` without a transition."""
        if key in self._by_key and key in self._scheduler.tasks:
            self.recount(self._scheduler.tasks[key])
        self._touched()

    def restart(self, _scheduler: Scheduler) -> None:
        """Forget all tasks, as the scheduler just did."""
        self._by_key.clear()
        self._counts.clear()
        self._totals.clear()
        self.own.clear()
        self._touched()

    def follow(self, now: float) -> dict[Requirement, bool]:
        """Bring the clocks up to date and return requirement -> whether some of it is unrunnable: O(requirements)."""
        unrunnable = {
            requirement: self._totals[requirement, "no-worker"] + self._totals[requirement, "queued"] > 0
            for requirement in self._counts
        }
        scheduler = self._scheduler
        restricted = sum(self._totals[requirement, "no-worker"] for requirement in self._counts)
        plain_unrunnable = len(scheduler.queued) + len(scheduler.unrunnable) > restricted
        processing = sum(len(ws.processing) for ws in scheduler.workers.values()) - sum(self.own.values())
        if plain_unrunnable or processing:
            unrunnable[PLAIN] = plain_unrunnable
        self._unrunnable_since = {
            requirement: self._unrunnable_since.get(requirement, now)
            for requirement, some in unrunnable.items()
            if some
        }
        return unrunnable

    def entries(self, now: float) -> list[dict[str, Any]]:
        """Return the `demand` of the protocol: the restricted requirements in order, then plain demand."""
        self.follow(now)
        longer = self._seconds_past_mean()
        found = [*sorted(self._counts), PLAIN]
        entries = [self._entry(r, self._plain() if r == PLAIN else self._counts[r], longer, now) for r in found]
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

    def _plain(self) -> Counter[tuple[str, str]]:
        """Return distributed's own totals less the restricted tasks: (prefix, state) -> plain tasks."""
        counts: Counter[tuple[str, str]] = Counter()
        for prefix in self._scheduler.task_prefixes.values():
            states: dict[Any, int] = prefix.states
            for state in ACTIVE:
                if n := states.get(state, 0):
                    counts[prefix.name, state] = n
        for restricted in self._counts.values():
            counts.subtract(restricted)
        return +counts

    def _seconds_past_mean(self) -> dict[Requirement, float]:
        """Return how much longer than their mean the running tasks have taken: a task's age is a lower bound."""
        longer: dict[Requirement, float] = {}
        for ts, elapsed_seconds in self._executing():
            counted = self._by_key.get(ts.key)
            requirement = counted.requirement if counted else PLAIN
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

    def _add(self, counted: Counted, n: int) -> None:
        counts = self._counts.setdefault(counted.requirement, Counter())
        _bump(counts, (counted.prefix, counted.state), n)
        _bump(self._totals, (counted.requirement, counted.state), n)
        if counted.worker is not None:
            _bump(self.own, counted.worker, n)
            self.worked.add(counted.worker)
        if not counts:
            del self._counts[counted.requirement]

    def _learn(self, ts: TaskState, address: str, startstops: list[dict[str, Any]]) -> None:
        ws = self._scheduler.workers.get(address)
        self._durations.learn(ts.prefix.name, pool_of(ws.name) if ws else "", startstops)
        if len(self._durations) > PREFIXES:
            self._durations.forget_except(self._scheduler.task_prefixes)


def _bump(counter: Counter[Any], key: Any, n: int) -> None:
    """Add, and drop what becomes 0, so that counters hold only what is there."""
    counter[key] += n
    if not counter[key]:
        del counter[key]
