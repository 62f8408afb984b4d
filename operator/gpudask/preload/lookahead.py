"""Look-ahead: estimates of when the first waiting task can run, so that a pod which takes minutes starts in time.

From a requirement's first waiting tasks it walks back over what is not done yet. The estimate is the longest chain of
known durations on the way, or all their seconds over the threads that serve them, whichever is more. Where the
ancestors are too many to walk, the groups of tasks stand in for them; of what runs already nothing is known then.

A duration that nobody knows makes the estimate unknown where a task reads its data from outside, as the first step of a
program does. A later step of a kind that never ran (what comes together at the end of a phase does so once) counts as
`distributed.scheduler.unknown-task-duration`, half a second, and no more is assumed of it than that: a task that runs
longer than expected, known or not, is taken to need as long again as it is over its time. So an estimate that was too
early grows, until the pod that was ordered for it is given up.

Bounded: at most once a second while something waits, a fixed number of nodes, and never more than a small share of the
scheduler's time. What is not an ancestor but runs before it is not known: the estimate is early then.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .counts import ACTIVE, Counts
from .requirements import PLAIN, Requirement, requirement_of, slots_of

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskGroup, TaskState

    from .pools import Pools
    from .watch import Watch

UNKNOWN_SECONDS = 0.5  # where distributed has no setting for an unknown duration
EVERY_SECONDS = 1.0
SHARE = 0.01  # of the event loop's CPU time may go into estimates
BUDGET = 5_000  # nodes and edges met, all requirements together
LOOK_AT = 5_000  # counted tasks looked at to find the first waiting ones
FIRST = 16  # waiting tasks of which an estimate is made
FAN_OUT = 2_000  # dependents looked at
REPORT_SECONDS = 3.0  # between two versions because of estimates
MOVED = 0.2  # of the time left, or MOVED_SECONDS: a smaller change does not matter
MOVED_SECONDS = 1.0
MARKS_SECONDS = (600.0, 300.0, 120.0, 60.0, 30.0, 10.0, 5.0, 0.0)  # below which an estimate has changed
TOGETHER = 1.25  # tasks that can run within so many times the first one's time come with it
PREFIXES = 10_000  # remembered before those that have vanished are dropped
MEMORY = 50  # tasks; later ones weigh as if only so many came before, so that the mean follows a change

Node = TypeVar("Node", bound=Hashable)


class TooLargeError(Exception):
    """The walk met more nodes and edges than it may."""


class UnknownError(Exception):
    """It is not known how long something takes, or no worker serves it."""


@dataclass(frozen=True)
class Estimate:
    """`seconds` from the moment `at` until the first waiting task can run, None when unknown; `tasks` can run then."""

    at: float
    seconds: float | None = None
    tasks: int = 0

    def left(self, now: float) -> float | None:
        """Return the seconds that are left now."""
        return None if self.seconds is None else max(0.0, self.seconds - (now - self.at))


class Durations:
    """Mean seconds of compute by (prefix, pool).

    distributed's own mean is forgotten when one task runs past twice of it (sizes would flap), and it mixes CPU and GPU
    workers.
    """

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._means: dict[str, dict[str, tuple[float, int]]] = {}  # prefix -> pool -> (mean seconds, tasks)
        self._most = PREFIXES

    def learn(self, prefix: str, pool: str, startstops: Iterable[dict[str, Any]]) -> None:
        """Record a finished task."""
        seconds = 0.0
        for startstop in startstops:  # a plain loop: this runs for every task that ends
            if startstop["action"] == "compute":
                seconds += startstop["stop"] - startstop["start"]
        by_pool = self._means.setdefault(prefix, {})
        mean, n = by_pool.get(pool, (0.0, 0))
        n = min(n + 1, MEMORY)
        by_pool[pool] = (mean + (seconds - mean) / n, n)

    def mean(self, prefix: str, *, restricted: bool) -> float | None:
        """Return the mean seconds of a task of `prefix`, None when no such task has ended.

        The pools that the task is meant for count: annotated ones for a restricted task, the others for a plain one.
        Where it never ran there, any pool's mean is better than none.
        """
        by_pool = self._means.get(prefix)
        if not by_pool:
            return None
        meant = [m for pool, m in by_pool.items() if self._pools.is_fenced_pool(pool) == restricted]
        chosen = meant or list(by_pool.values())
        return sum(mean * n for mean, n in chosen) / sum(n for _, n in chosen)

    def forget_vanished(self, prefixes: Collection[str]) -> None:
        """Drop all prefixes but these once there are many, so that a scheduler that lives for months does not grow.

        It is done when as many have come as were left the last time: so it costs next to nothing for each.
        """
        if len(self._means) > self._most:
            self._means = {prefix: pools for prefix, pools in self._means.items() if prefix in prefixes}
            self._most = max(PREFIXES, 2 * len(self._means))


class LookAhead:
    """The estimates by requirement. `changes` grows when one has changed enough to matter."""

    def __init__(self, scheduler: Scheduler, counts: Counts, durations: Durations, pools: Pools, watch: Watch) -> None:
        self._scheduler = scheduler
        self._counts = counts
        self._durations = durations
        self._pools = pools
        self._watch = watch
        self._estimates: dict[Requirement, Estimate] = {}
        self._reported: dict[Requirement, Estimate] = {}
        self._rests_until = -math.inf
        self._timer: asyncio.TimerHandle | None = None
        self.changes = 0

    def follow(self, waiting: Collection[Requirement], now: float) -> dict[Requirement, Estimate]:
        """Return the estimates for what waits, made anew when they are old."""
        if not waiting:
            self._estimates, self._reported = {}, {}
            return {}
        if now >= self._rests_until or any(requirement not in self._estimates for requirement in waiting):
            started = time.thread_time()
            self._estimates = {
                requirement: self._estimate(requirement, BUDGET // len(waiting), now) for requirement in waiting
            }
            self._rests_until = now + max(EVERY_SECONDS, (time.thread_time() - started) / SHARE)
            self._report(now)
            self._check_again(self._rests_until - now)
        return self._estimates

    def stop(self) -> None:
        """Estimate no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _check_again(self, seconds: float) -> None:
        """Have the watch check again, even when nothing else happens."""
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._watch.touch)

    def _report(self, now: float) -> None:
        for requirement, estimate in self._estimates.items():
            reported = self._reported.get(requirement)
            if reported is None or (now - reported.at >= REPORT_SECONDS and _is_change(reported, estimate)):
                self._reported[requirement] = estimate
                self.changes += 1
        self._reported = {
            requirement: reported for requirement, reported in self._reported.items() if requirement in self._estimates
        }

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
                break  # the first ones suffice
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
        reported: float = prefix.duration_average  # by the user: distributed.scheduler.default-task-durations
        if reported >= 0:
            return reported
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


class Ancestors(Generic[Node]):
    """Walks back from several nodes; what was walked once is remembered.

    Args:
        before: what has to end before a node can start.
        seconds: how long a node itself still takes; called once a node.
        budget: nodes and edges that may be met in all.
    """

    def __init__(self, before: Callable[[Node], Iterable[Node]], seconds: Callable[[Node], float], budget: int) -> None:
        self._before = before
        self._seconds = seconds
        self.budget = budget
        self._ends: dict[Node, float] = {}  # seconds from now, if there were a thread for everything

    def start(self, node: Node) -> float:
        """Return in how many seconds `node` could start, were there a thread for everything.

        A node that is met while its own ancestors are walked (groups of tasks may depend on each other) counts as
        ended. Raises `TooLargeError`.
        """
        stack = [(node, self._edges(node))]
        met = {node}
        while stack:
            current, edges = stack[-1]
            following = next((other for other in edges if other not in met and other not in self._ends), None)
            if following is not None:
                met.add(following)
                stack.append((following, self._edges(following)))
                continue
            stack.pop()
            start = max((self._ends.get(other, 0.0) for other in self._before(current)), default=0.0)
            if current == node:
                return start
            self._ends[current] = start + self._seconds(current)
        raise AssertionError("unreachable")

    def last_before(self, node: Node) -> Node | None:
        """Return the one among those before `node` that ends last, after `start(node)`."""
        return max(self._before(node), key=lambda other: self._ends.get(other, 0.0), default=None)

    def _edges(self, node: Node) -> Iterable[Node]:
        edges = self._before(node)
        edges = edges if isinstance(edges, (set, frozenset, list, tuple)) else list(edges)
        self.budget -= 1 + len(edges)
        if self.budget < 0:
            raise TooLargeError
        return iter(edges)


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


def _is_change(reported: Estimate, estimate: Estimate) -> bool:
    """Return whether the reported estimate is wrong by now, or an estimate has fallen below a mark since."""
    if reported.seconds is None or estimate.seconds is None:
        return reported.seconds != estimate.seconds
    expected = reported.left(estimate.at) or 0.0
    if abs(estimate.seconds - expected) > max(MOVED_SECONDS, MOVED * estimate.seconds):
        return True
    return any(estimate.seconds <= mark < reported.seconds for mark in MARKS_SECONDS)
