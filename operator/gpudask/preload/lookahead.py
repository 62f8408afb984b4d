"""In how long the first of the waiting tasks can run: so that a pod which takes minutes to come starts in time.

From a requirement's first waiting tasks it walks back over what is not done yet. The estimate is the longest chain of
known durations on the way, or all their seconds over the threads that serve them, whichever is more. Where the
ancestors are too many to walk, the groups of tasks stand in for them; of what runs already nothing is known then.

A duration that nobody knows makes the estimate unknown where a task reads its data from outside, as the first step of a
program does. A later step of a kind that never ran (what comes together at the end of a phase does so once) counts as
`distributed.scheduler.unknown-task-duration`, half a second, and no more is assumed of it than that: a task that runs
longer than expected, known or not, is taken to need as long again as it is over its time. So an estimate that was too
early grows, until the pod that was ordered for it is given up.

Bounded: at most once a second while something waits, a fixed number of nodes, and never more than a small share of the
scheduler's time. What is not an ancestor but runs before it is not seen: the estimate is early then.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .counts import ACTIVE, PLAIN, Counts, Requirement, requirement_of
from .longest import Ancestors, TooLargeError
from .slots import slots_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from distributed.scheduler import Scheduler, TaskGroup, TaskState

    from .durations import Durations
    from .pools import Pools
    from .watch import Watch

UNKNOWN_SECONDS = 0.5  # where a distributed does not say what it takes an unknown duration for
EVERY_SECONDS = 1.0
SHARE = 0.01  # of the event loop's CPU time may go into estimates
BUDGET = 5_000  # nodes and edges met, all requirements together
LOOK_AT = 5_000  # counted tasks looked at to find the first waiting ones
FIRST = 16  # waiting tasks asked
FAN_OUT = 2_000  # dependents looked at
RING_SECONDS = 3.0  # between two versions because of estimates
MOVED = 0.2  # of the time left, or MOVED_SECONDS: a smaller change is no news
MOVED_SECONDS = 1.0
MARKS_SECONDS = (600.0, 300.0, 120.0, 60.0, 30.0, 10.0, 5.0, 0.0)  # below which an estimate is news
TOGETHER = 1.25  # tasks that can run within so many times the first one's time come with it


class UnknownError(Exception):
    """Nobody can say how long something takes, or no worker serves it."""


@dataclass(frozen=True)
class Estimate:
    """`seconds` from the moment `at` until the first waiting task can run, None when unknown; `tasks` can run then."""

    at: float
    seconds: float | None = None
    tasks: int = 0

    def left(self, now: float) -> float | None:
        """Return the seconds that are left now."""
        return None if self.seconds is None else max(0.0, self.seconds - (now - self.at))


class LookAhead:
    """The estimates by requirement. `news` grows when one has changed enough to matter."""

    def __init__(self, scheduler: Scheduler, counts: Counts, durations: Durations, pools: Pools, watch: Watch) -> None:
        self._scheduler = scheduler
        self._counts = counts
        self._durations = durations
        self._pools = pools
        self._watch = watch
        self._estimates: dict[Requirement, Estimate] = {}
        self._told: dict[Requirement, Estimate] = {}
        self._rests_until = -math.inf
        self._timer: asyncio.TimerHandle | None = None
        self.news = 0

    def follow(self, waiting: Collection[Requirement], now: float) -> dict[Requirement, Estimate]:
        """Return the estimates for what waits, made anew when they are old."""
        if not waiting:
            self._estimates, self._told = {}, {}
            return {}
        if now >= self._rests_until or any(requirement not in self._estimates for requirement in waiting):
            started = time.thread_time()
            self._estimates = {
                requirement: self._estimate(requirement, BUDGET // len(waiting), now) for requirement in waiting
            }
            self._rests_until = now + max(EVERY_SECONDS, (time.thread_time() - started) / SHARE)
            self._tell(now)
            self._look_again(self._rests_until - now)
        return self._estimates

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_again(self, seconds: float) -> None:
        """See to it that there is a look when nothing else happens."""
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._watch.touch)

    def _tell(self, now: float) -> None:
        for requirement, estimate in self._estimates.items():
            told = self._told.get(requirement)
            if told is None or (now - told.at >= RING_SECONDS and _is_news(told, estimate)):
                self._told[requirement] = estimate
                self.news += 1
        self._told = {requirement: told for requirement, told in self._told.items() if requirement in self._estimates}

    def _estimate(self, requirement: Requirement, budget: int, now: float) -> Estimate:
        keys = self._counts.first_waiting(requirement, FIRST, LOOK_AT)
        first = [self._scheduler.tasks[key] for key in keys if key in self._scheduler.tasks]
        try:
            return self._by_tasks(requirement, first, budget, now)
        except UnknownError:
            return Estimate(now)
        except TooLargeError:
            pass
        try:
            return self._by_groups(requirement, first[0], budget, now)
        except (UnknownError, TooLargeError):
            return Estimate(now)

    def _by_tasks(self, requirement: Requirement, first: list[TaskState], budget: int, now: float) -> Estimate:
        work = Work(self)

        def seconds(ts: TaskState) -> float:
            return work.add(requirement_of(ts), self._seconds_left(ts))

        ancestors: Ancestors[TaskState] = Ancestors(_before, seconds, budget)
        starts: dict[TaskState, float] = {}
        for ts in first:
            try:
                starts[ts] = max(ancestors.start(ts), work.seconds())
            except TooLargeError:
                if not starts:
                    raise
                break  # the first ones tell enough
        if not starts:
            return Estimate(now)
        soonest = min(starts, key=starts.__getitem__)
        together = [ts for ts in starts if starts[ts] <= starts[soonest] * TOGETHER + MOVED_SECONDS / 2]
        tasks = max(len(together), _fan_out(requirement, ancestors.last_before(soonest)))
        return Estimate(now, starts[soonest], tasks)

    def _by_groups(self, requirement: Requirement, ts: TaskState, budget: int, now: float) -> Estimate:
        work = Work(self)
        asks = self._requirements_by_prefix()

        def seconds(group: TaskGroup) -> float:
            states: dict[Any, int] = group.states
            n = sum(states.get(state, 0) for state in ACTIVE)
            if not n:
                return 0.0
            asked = asks.get(group.prefix.name, PLAIN)
            each = self._mean(group.prefix, asked, is_first=not group.dependencies)
            work.add(asked, n * each)
            return each

        ancestors: Ancestors[TaskGroup] = Ancestors(_groups_before, seconds, budget)
        chain = ancestors.start(ts.group)
        only = next(iter(ts.waiting_on)) if ts.waiting_on and len(ts.waiting_on) == 1 else None
        return Estimate(now, max(chain, work.seconds()), max(1, _fan_out(requirement, only)))

    def _seconds_left(self, ts: TaskState) -> float:
        mean = self._mean(ts.prefix, requirement_of(ts), is_first=not ts.dependencies)
        ws = ts.processing_on
        return mean if ws is None else abs(mean - ws.executing.get(ts, 0.0))

    def _mean(self, prefix: Any, requirement: Requirement, *, is_first: bool) -> float:
        """Return the expected seconds of a task. `is_first`: it has no inputs. Raises `UnknownError`."""
        mean = self._durations.mean(prefix.name, restricted=requirement != PLAIN)
        if mean is not None:
            return mean
        told: float = prefix.duration_average  # by the user: distributed.scheduler.default-task-durations
        if told >= 0:
            return told
        if is_first:
            raise UnknownError
        return float(getattr(self._scheduler, "UNKNOWN_TASK_DURATION", UNKNOWN_SECONDS))

    def threads(self, requirement: Requirement) -> int:
        """Return how many tasks of a requirement the running workers can run at once. Raises `UnknownError` for 0."""
        running = self._scheduler.running
        if requirement == PLAIN:
            threads = sum(ws.nthreads for ws in running if not self._pools.is_fenced(ws))
        else:
            threads = sum(slots_of(ws, requirement) for ws in running)
        if not threads:
            raise UnknownError
        return threads

    def _requirements_by_prefix(self) -> dict[str, Requirement]:
        """Return what most restricted tasks of a prefix ask for."""
        n: Counter[tuple[str, Requirement]] = Counter()
        for bucket in self._counts.buckets():
            n[bucket.prefix, bucket.requirement] += bucket.n
        return {prefix: requirement for (prefix, requirement), _ in reversed(n.most_common())}


class Work:
    """Seconds of work by who serves them."""

    def __init__(self, look_ahead: LookAhead) -> None:
        self._look_ahead = look_ahead
        self._seconds: Counter[Requirement] = Counter()
        self._threads: dict[Requirement, int] = {}

    def add(self, requirement: Requirement, seconds: float) -> float:
        """Add work and return it. Raises `UnknownError` when no worker serves it."""
        if requirement not in self._threads:
            self._threads[requirement] = self._look_ahead.threads(requirement)
        self._seconds[requirement] += seconds  # type: ignore[assignment]
        return seconds

    def seconds(self) -> float:
        """Return how long the work takes those who serve it."""
        return max((seconds / self._threads[requirement] for requirement, seconds in self._seconds.items()), default=0)


def _before(ts: TaskState) -> Iterable[TaskState]:
    return ts.waiting_on or ()


def _groups_before(group: TaskGroup) -> Iterable[TaskGroup]:
    return group.dependencies


def _fan_out(requirement: Requirement, ts: TaskState | None) -> int:
    """Return how many tasks of a requirement wait for `ts` alone."""
    dependents = itertools.islice(ts.dependents if ts is not None else (), FAN_OUT)
    return sum(1 for other in dependents if len(other.waiting_on or ()) == 1 and requirement_of(other) == requirement)


def _is_news(told: Estimate, estimate: Estimate) -> bool:
    """Return whether what was told is wrong by now, or an estimate has fallen below a mark since."""
    if told.seconds is None or estimate.seconds is None:
        return told.seconds != estimate.seconds
    expected = told.left(estimate.at) or 0.0
    if abs(estimate.seconds - expected) > max(MOVED_SECONDS, MOVED * estimate.seconds):
        return True
    return any(estimate.seconds <= mark < told.seconds for mark in MARKS_SECONDS)
