"""When the answer has changed in a way that matters: the version, and the long polls that wait for the next one.

Every transition touches the watch, so a touch costs next to nothing. It leads to one cheap look for edges, at most 50
a second. An edge makes a new version at once, unless the same thing changed within the last 0.2 s; plain counts follow
at most once a second. A version is new only if the answer differs: where nothing changes, none is made.

In large clusters looking takes longer; then it rests in proportion, so that it never takes more than a small share of
the scheduler's time.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

LOOK_SECONDS = 0.02
INTERVAL_SECONDS = 0.2
COUNTS_SECONDS = 1.0  # the operator looks at plain counts no more often
LOOK_SHARE = 0.02  # of the event loop's CPU time may go into looks
VERSION_SHARE = 0.05  # ... and into finding out whether the answer differs
COUNTS = "counts"

Edges = dict[Any, Any]  # topic -> what is compared with the last look


class Watch:
    """The version counter. `look` returns the edges, `fingerprint` the part of the answer that matters."""

    def __init__(self, look: Callable[[], Edges], fingerprint: Callable[[], Hashable]) -> None:
        self._loop = asyncio.get_running_loop()
        self._look = look
        self._fingerprint = fingerprint
        self._edges: Edges = {}
        self._seen: Hashable = None
        self.is_looking = False  # whether a look is due already: a touch more does nothing
        self._look_after = -math.inf
        self._interval_seconds = INTERVAL_SECONDS
        self._rung: dict[Any, float] = {}  # topic -> when it last made a version
        self._pending: set[Any] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._listeners: list[Callable[[], None]] = []
        self.counter = 0

    def touch(self) -> None:
        """Note that something may have changed. The look comes after the current batch of transitions."""
        if not self.is_looking:
            self.is_looking = True
            self._loop.call_at(max(self._loop.time(), self._look_after), self._on_look)

    def ring(self) -> None:
        """Make a new version at once, after the current batch: for workers that come and go, and drains that change."""
        self._want(object())  # a topic of its own is never held back
        self.touch()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each look: for the drains, which wait for what a transition brings."""
        self._listeners.append(listener)

    def settle(self, seen: Hashable) -> int:
        """Return the version of a state with this fingerprint: an answer never shows more than its version says."""
        if seen != self._seen:
            self._seen = seen
            self.counter += 1
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters.clear()
        return self.counter

    def next_version(self) -> asyncio.Future[None]:
        """Return a future that is done with the next version; whoever stops waiting cancels it."""
        waiter = self._loop.create_future()
        self._waiters.add(waiter)
        waiter.add_done_callback(self._waiters.discard)
        return waiter

    def _on_look(self) -> None:
        self.is_looking = False
        started = time.thread_time()
        edges = self._look()
        for topic in edges.keys() | self._edges.keys():
            if edges.get(topic) != self._edges.get(topic):
                self._want(topic)
        self._edges = edges
        self._want(COUNTS)
        for listener in self._listeners:
            listener()
        rest_seconds = max(LOOK_SECONDS, (time.thread_time() - started) / LOOK_SHARE)
        self._look_after = self._loop.time() + rest_seconds

    def _want(self, topic: Any) -> None:
        """Make a version as soon as the topic may have another one."""
        self._pending.add(topic)
        now = self._loop.time()
        due = max(now, self._rung.get(topic, -math.inf) + self._interval_of(topic))
        if self._timer is None or due < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(due, self._on_due)

    def _interval_of(self, topic: Any) -> float:
        return max(self._interval_seconds, COUNTS_SECONDS if topic == COUNTS else 0.0)

    def _on_due(self) -> None:
        self._timer = None
        now = self._loop.time()
        self._rung = {topic: at for topic, at in self._rung.items() if now - at < self._interval_of(topic)}
        self._rung.update(dict.fromkeys(self._pending, now))
        self._pending.clear()
        started = time.thread_time()
        self.settle(self._fingerprint())
        self._interval_seconds = max(INTERVAL_SECONDS, (time.thread_time() - started) / VERSION_SHARE)
