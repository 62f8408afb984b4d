"""How much work waits and runs, for each distinct set of resource restrictions.

Restricted tasks are counted in `counts`. Plain tasks cost nothing: their counts are distributed's own totals by prefix,
less the restricted ones. Reading is O(changed tasks + requirements x prefixes), never O(tasks).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from .counts import ACTIVE, PLAIN, UNRUNNABLE, Counts, Requirement, requirement_of
from .ended import Ended
from .lookahead import LookAhead
from .names import pool_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed.scheduler import Scheduler, TaskState

    from .durations import Durations
    from .lookahead import Estimate
    from .pinned import Pinned
    from .pools import Pools
    from .watch import Watch

UNKNOWN_SECONDS = 0.5  # distributed's own guess for a task whose duration nobody knows
PREFIXES = 10_000  # remembered means before those of vanished prefixes are dropped


class Demand:
    """What distributed's transitions say, and the `demand` of the answer."""

    def __init__(self, scheduler: Scheduler, pools: Pools, durations: Durations, watch: Watch, pinned: Pinned) -> None:
        self._scheduler = scheduler
        self._tasks = scheduler.tasks  # the same for as long as the scheduler lives
        self._durations = durations
        self._watch = watch
        self._pinned = pinned
        self._counts = Counts()
        self._unrunnable_since: dict[Requirement, float] = {}
        self._most: dict[Requirement, int] = {}  # the most bits of its unrunnable tasks since it had none
        self._learnt: set[tuple[Any, str]] = set()  # (prefix, worker) of which a task was learnt since the last look
        self.ended = Ended()
        self.look_ahead = LookAhead(scheduler, self._counts, durations, pools, watch)
        self.is_counting = False

    def hook_in(self) -> None:
        """Count what is there already, since clients may have come before the preload."""
        self._counts.changed.update({key: ts for key, ts in self._scheduler.tasks.items() if ts.resource_restrictions})
        self.is_counting = True

    def transition(
        self,
        key: Any,
        start: str,  # noqa: ARG002
        finish: str,
        *_args: Any,
        worker: str = "",
        startstops: list[dict[str, Any]] | None = None,
        **_kwargs: Any,
    ) -> None:
        """Follow one transition. This runs several times for every task: it notes, and counts nothing."""
        ts = self._tasks[key]
        restricted = ts.resource_restrictions
        if restricted:
            self._counts.changed[key] = ts
        if ts.worker_restrictions or ts.host_restrictions:
            self._pinned.follow(ts)
        if startstops and finish == "memory":  # else it was not computed here
            (self.ended.restricted if restricted else self.ended.plain)[worker] += 1
            learnt = ts.prefix, worker
            if learnt not in self._learnt:
                self._learnt.add(learnt)
                self._learn(ts.prefix.name, worker, startstops)
        if not self._watch.is_looking:
            self._watch.touch()

    def update_graph(self, annotations: dict[str, Any]) -> None:
        """Follow a graph that came: it may restrict tasks that are known already, without a transition of theirs."""
        for key in annotations.get("resources", ()):
            ts = self._scheduler.tasks.get(key)
            if ts is not None and ts.state in ACTIVE:
                self._counts.changed[key] = ts

    def restart(self) -> None:
        """Forget all tasks, as the scheduler just did."""
        self._counts.clear()
        self._pinned.clear()
        self._watch.touch()

    def follow(self, now: float) -> dict[Requirement, int]:
        """Bring the clocks up to date and return the edges of each requirement that has tasks: O(requirements).

        That is 0 while none is unrunnable, else how many bits their number has had at most since: twice as many tasks
        that find no worker are an edge, fewer and fewer are none until it is none.
        """
        self._learnt.clear()
        self._counts.count()
        totals = self._counts.totals()
        unrunnable = {requirement: sum(n[state] for state in UNRUNNABLE) for requirement, n in totals.items()}
        scheduler = self._scheduler
        plain = max(0, len(scheduler.queued) + len(scheduler.unrunnable) - sum(unrunnable.values()))
        processing = sum(len(ws.processing) for ws in scheduler.workers.values())
        if plain or processing > sum(n["processing"] for n in totals.values()):
            unrunnable[PLAIN] = plain
        self._most = {
            requirement: max(n.bit_length(), self._most.get(requirement, 0))
            for requirement, n in unrunnable.items()
            if n
        }
        self._unrunnable_since = {
            requirement: self._unrunnable_since.get(requirement, now) for requirement in self._most
        }
        return dict.fromkeys(unrunnable, 0) | self._most

    def assigned(self) -> dict[Requirement, float]:
        """Return requirement -> mean seconds of a task, for the restricted tasks that workers have been given."""
        seconds: Counter[Requirement] = Counter()
        n: Counter[Requirement] = Counter()
        for bucket in self._counts.buckets():
            if bucket.state == "processing":
                mean = self._durations.mean(bucket.prefix, restricted=True)
                seconds[bucket.requirement] += bucket.n * (UNKNOWN_SECONDS if mean is None else mean)  # type: ignore[assignment]
                n[bucket.requirement] += bucket.n
        return {requirement: seconds[requirement] / n[requirement] for requirement in n}

    def entries(self, now: float) -> list[dict[str, Any]]:
        """Return the `demand` of the protocol: the restricted requirements in order, then plain demand."""
        self.follow(now)
        longer = self._seconds_past_mean()
        by_requirement = self._restricted()
        by_requirement[PLAIN] = self._plain(by_requirement)
        waiting = [requirement for requirement, n in self._counts.totals().items() if n["waiting"]]
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
        """Take a task's duration into account: of tasks that are many and short, the first after each look."""
        ws = self._scheduler.workers.get(address)
        self._durations.learn(prefix, pool_of(ws.name) if ws else "", startstops)
        if len(self._durations) > PREFIXES:
            self._durations.forget_except(self._scheduler.task_prefixes)


def _next(estimate: Estimate | None, now: float) -> dict[str, Any]:
    seconds = estimate.left(now) if estimate is not None else None
    return {"next_seconds": seconds, "next_tasks": estimate.tasks if estimate is not None else 0}
