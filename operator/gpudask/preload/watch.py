"""When the answer has changed in a way that matters: the version, and the long polls that wait for the next one.

Every transition touches the watch, so a touch costs next to nothing. It leads to one cheap look for edges, at most 100
a second. An edge makes a new version at once, unless the same thing changed within the last 0.2 s; plain counts follow
at most five times a second. A version is new only if the answer differs: where nothing changes, none is made.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

LOOK_SECONDS = 0.01
INTERVAL_SECONDS = 0.2
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
        self._looking = False
        self._looked = -math.inf
        self._rung: dict[Any, float] = {}  # topic -> when it last made a version
        self._pending: set[Any] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._listeners: list[Callable[[], None]] = []
        self.counter = 0

    def touch(self) -> None:
        """Note that something may have changed. The look comes after the current batch of transitions."""
        if not self._looking:
            self._looking = True
            self._loop.call_at(max(self._loop.time(), self._looked + LOOK_SECONDS), self._on_look)

    def ring(self) -> None:
        """Make a new version at once, after the current batch: for workers that come and go, and drains that change."""
        self._want(object())  # a topic of its own is never held back
        self.touch()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each look: for the drains, which wait for what a transition brings."""
        self._listeners.append(listener)

    def settle(self) -> int:
        """Return the version of the state as it is now, so that an answer never shows more than its version says."""
        seen = self._fingerprint()
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
        self._looking = False
        self._looked = self._loop.time()
        edges = self._look()
        for topic in edges.keys() | self._edges.keys():
            if edges.get(topic) != self._edges.get(topic):
                self._want(topic)
        self._edges = edges
        self._want(COUNTS)
        for listener in self._listeners:
            listener()

    def _want(self, topic: Any) -> None:
        """Make a version as soon as the topic may have another one."""
        self._pending.add(topic)
        now = self._loop.time()
        due = max(now, self._rung.get(topic, -math.inf) + INTERVAL_SECONDS)
        if self._timer is None or due < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(due, self._on_due)

    def _on_due(self) -> None:
        self._timer = None
        now = self._loop.time()
        self._rung = {topic: at for topic, at in self._rung.items() if now - at < INTERVAL_SECONDS}
        self._rung.update(dict.fromkeys(self._pending, now))
        self._pending.clear()
        self.settle()
