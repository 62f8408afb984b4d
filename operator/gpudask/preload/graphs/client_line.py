"""A client's messages in the order in which it sent them, while the first of them is a graph that cannot be read yet.

Whatever names keys waits its turn: a later graph may depend on an earlier one, and a release that came too soon would
forget what a graph still needs. What nobody wants any more leaves: nothing is started for it.
"""

from __future__ import annotations

import asyncio
import enum
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Does(enum.Enum):
    """What a message is about."""

    UPDATES = "updates"  # a graph, of which it wants keys
    WANTS = "wants"
    GIVES_UP = "gives up"  # by release or cancellation
    ELSE = "else"


class Message:
    """One message that waits.

    Args:
        does: what it is about.
        keys: that it names.
        apply: hands it to the scheduler; what it returns may have to be awaited.
        nbytes: how large it is.
    """

    def __init__(
        self, does: Does, keys: Iterable[Any], apply: Callable[[], Any] = lambda: None, *, nbytes: int = 0
    ) -> None:
        self.does = does
        self.keys = frozenset(keys)
        self.apply = apply
        self.nbytes = nbytes
        self.work: asyncio.Future[Any] | None = None  # while it is applied
        self.is_unwanted = False


class ClientLine:
    """What waits of one client; the first of it is applied."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.messages: deque[Message] = deque()
        self.task: asyncio.Task[None] | None = None  # applies them
        self._nbytes = 0
        self._brings: Counter[Any] = Counter()  # key -> graphs that have it
        self._last: Message | None = None  # of the graphs
        self._given_up: set[Any] = set()  # after that
        self._shorter = asyncio.Event()

    def is_full(self, most: int, most_bytes: int) -> bool:
        """Return whether so many messages wait, or so many bytes."""
        return len(self.messages) >= most or self._nbytes >= most_bytes

    async def until_shorter(self) -> None:
        """Wait until a message has left."""
        self._shorter.clear()
        await self._shorter.wait()

    def brings_any(self, keys: Iterable[Any]) -> bool:
        """Return whether a graph that waits makes any of these keys known."""
        return any(key in self._brings for key in keys)

    def add(self, message: Message) -> None:
        """Add a message at the end; take out the graphs that nobody wants since."""
        self.messages.append(message)
        self._nbytes += message.nbytes
        if message.does is Does.UPDATES:
            self._brings.update(message.keys)
            self._last, self._given_up = message, set()
        elif message.does is Does.GIVES_UP:
            self._given_up |= message.keys
            if self._last is not None and self._last.keys <= self._given_up:  # else none is unwanted
                self._take_out_unwanted()

    def remove(self, message: Message) -> None:
        """Take out a message that was applied, or that nobody wants."""
        self.messages.remove(message)
        self._nbytes -= message.nbytes
        if message.does is Does.UPDATES:
            self._brings -= Counter(message.keys)
        self._shorter.set()

    def close(self) -> None:
        """Apply no more: its client has gone."""
        self.messages.clear()
        self._shorter.set()
        if self.task is not None:
            self.task.cancel()

    def _take_out_unwanted(self) -> None:
        found, self._last, self._given_up = unwanted(self.messages)
        for message in found:
            message.is_unwanted = True
            if message.work is None:
                self.remove(message)
            else:
                message.work.cancel()  # it is the first one, and is taken out then


def unwanted(messages: Iterable[Message]) -> tuple[list[Message], Message | None, set[Any]]:
    """Return the graphs all of whose keys were given up later, and on which no later graph could depend.

    And the last graph that is none of these, with the keys that were given up after it. What somebody says to want is
    wanted: it may be another than who gives it up, as with `fire_and_forget`.
    """
    given_up: set[Any] = set()
    wanted: set[Any] = set()
    found: list[Message] = []
    for message in reversed(list(messages)):
        if message.does is Does.GIVES_UP:
            given_up |= message.keys
        elif message.does is Does.WANTS:
            wanted |= message.keys
        elif message.does is Does.UPDATES:
            if not message.keys <= given_up or message.keys & wanted:
                return found, message, given_up
            found.append(message)
    return found, None, given_up
