"""The version of the demand route's answer, and the long polls that wait for the next one.

Every transition touches the watch, so a touch costs next to nothing. It leads to one cheap check for edges: at once
after a rest, then 25 a second, and 2 where tasks go on ending. An edge makes a new version at once, unless the same
thing changed within the last 0.2 s; what goes on to change so often makes one ever more rarely, down to one a second,
until it rests. Plain counts follow at most once a second. A version is new only if the answer differs: where nothing
changes, none is made. Some changes are urgent: all but counts, and workers without GPUs that become busy or idle.

In large clusters a check takes longer; then it rests in proportion, so that it never takes more than a small share of
the scheduler's time.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CHECK_SECONDS, LAST_CHECK_SECONDS = 0.04, 0.5  # between two checks: twice as long while each follows the one before
INTERVAL_SECONDS = 0.2
FLAPPING_SECONDS = 1.0  # between two versions by what changes again and again
COUNTS_SECONDS = 1.0  # the operator reads plain counts no more often
CHECK_SHARE = 0.01  # of the event loop's CPU time may go into checks
VERSION_SHARE = 0.02  # ... and into finding out whether the answer differs
NOW_SHARE = 0.1  # ... where workers come and go, and drains get on
COUNTS, NOW, BUSY = "counts", "now", "busy"
_NOT_URGENT = frozenset({COUNTS, BUSY})

Edges = dict[Any, Any]  # topic -> what is compared with the last check


class Watch:
    """The version counter. `edges` returns them as they are; `compare` calls `new_version` if the answer differs."""

    def __init__(self, edges: Callable[[], Edges], compare: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._edges_now = edges
        self._compare = compare
        self._edges: Edges = {}
        self.is_check_due = False  # whether a check is due already: a touch more does nothing
        self._check_after = -math.inf
        self._check_seconds = CHECK_SECONDS
        self._interval_seconds = INTERVAL_SECONDS
        self._now_seconds = 0.0
        self._published: dict[Any, tuple[float, float]] = {}  # topic -> its last version, until when the next waits
        self._pending: set[Any] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._urgent_waiters: dict[asyncio.Future[None], int] = {}  # with the counter of the version that each has
        self._listeners: list[Callable[[], None]] = []
        self.counter = 0
        self.urgent_counter = 0  # the counter of the last version with an urgent change

    def touch(self) -> None:
        """Note that something may have changed. The check comes after the current batch of transitions."""
        if not self.is_check_due:
            self.is_check_due = True
            self._loop.call_at(max(self._loop.time(), self._check_after), self._on_check)

    def publish_now(self) -> None:
        """Make a new version at once, after the current batch: for workers that come and go, and drains that change."""
        self.publish(NOW)
        self.touch()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each check: for the drains, which wait for what a transition brings."""
        self._listeners.append(listener)

    def new_version(self) -> None:
        """Count another version, and answer the polls: the answer differs."""
        self.counter += 1
        _wake(self._waiters)
        self._waiters.clear()

    def next_version(self) -> asyncio.Future[None]:
        """Return a future that is done with the next version; whoever stops waiting cancels it."""
        waiter = self._loop.create_future()
        self._waiters.add(waiter)
        waiter.add_done_callback(self._waiters.discard)
        return waiter

    def next_urgent_version(self, counter: int) -> asyncio.Future[None]:
        """Return a future as `next_version`, done with the next version but that of `counter` with an urgent change."""
        waiter = self._loop.create_future()
        self._urgent_waiters[waiter] = counter
        waiter.add_done_callback(lambda waiter: self._urgent_waiters.pop(waiter, None))
        return waiter

    def _on_check(self) -> None:
        self.is_check_due = False
        started = time.thread_time()
        edges = self._edges_now()
        for topic in edges.keys() | self._edges.keys():
            if edges.get(topic) != self._edges.get(topic):
                self.publish(topic)
        self._edges = edges
        self.publish(COUNTS)
        for listener in self._listeners:
            listener()
        now = self._loop.time()
        has_rested = now > self._check_after + LAST_CHECK_SECONDS
        self._check_seconds = CHECK_SECONDS if has_rested else min(2 * self._check_seconds, LAST_CHECK_SECONDS)
        self._check_after = now + max(self._check_seconds, (time.thread_time() - started) / CHECK_SHARE)

    def publish(self, topic: Any) -> None:
        """Make a version as soon as the topic may have another one."""
        self._pending.add(topic)
        now = self._loop.time()
        _, free_at = self._published.get(topic, (0.0, now))
        due = max(now, free_at)
        if self._timer is None or due < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(due, self._on_due)

    def _on_due(self) -> None:
        self._timer = None
        now = self._loop.time()
        topics, self._pending = self._pending, set()
        published = {
            topic: (at, free_at) for topic, (at, free_at) in self._published.items() if now < _rests_at(at, free_at)
        }
        started = time.thread_time()
        self._compare()
        took_seconds = time.thread_time() - started
        if topics - _NOT_URGENT and self.counter != self.urgent_counter:
            self.urgent_counter = self.counter  # which an answer in between may have made, and somebody have got
            _wake([waiter for waiter, counter in self._urgent_waiters.items() if counter != self.counter])
        self._interval_seconds = max(INTERVAL_SECONDS, took_seconds / VERSION_SHARE)
        self._now_seconds = took_seconds / NOW_SHARE
        self._published = published | {
            topic: (now, now + self._interval_of(topic, published.get(topic))) for topic in topics
        }

    def _interval_of(self, topic: Any, before: tuple[float, float] | None) -> float:
        """Return for how long a topic that makes a version now makes no other; `before` is of its last one."""
        if topic == NOW:
            return self._now_seconds
        if topic == COUNTS:
            return max(self._interval_seconds, COUNTS_SECONDS)
        if before is None:
            return self._interval_seconds
        at, free_at = before
        return max(self._interval_seconds, min(2 * (free_at - at), FLAPPING_SECONDS))


def _wake(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


def _rests_at(at: float, free_at: float) -> float:
    """Return when a topic has rested as long as it waited: then it is as new."""
    return free_at + (free_at - at)
