"""A client's messages in the order in which it sent them, while the first of them is a graph that cannot be read yet.

Whatever names keys waits its turn: a later graph may depend on an earlier one, and a release that came too soon would
forget what a graph still needs. What nobody wants any more leaves: nothing is started for it.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
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
        self._shorter = asyncio.Event()

    def is_full(self, most: int, most_bytes: int) -> bool:
        """Return whether so many messages wait, or so many bytes."""
        return len(self.messages) >= most or sum(message.nbytes for message in self.messages) >= most_bytes

    async def until_shorter(self) -> None:
        """Wait until a message has left."""
        self._shorter.clear()
        await self._shorter.wait()

    def remove(self, message: Message) -> None:
        """Take out a message that was applied, or that nobody wants."""
        self.messages.remove(message)
        self._shorter.set()

    def close(self) -> None:
        """Apply no more: its client has gone."""
        self.messages.clear()
        self._shorter.set()
        if self.task is not None:
            self.task.cancel()

    def brings_any(self, keys: Iterable[Any]) -> bool:
        """Return whether a graph that waits makes any of these keys known."""
        return any(message.does is Does.UPDATES and not message.keys.isdisjoint(keys) for message in self.messages)

    def add(self, message: Message) -> None:
        """Add a message at the end; take out the graphs that nobody wants since."""
        self.messages.append(message)
        if message.does is Does.GIVES_UP:
            for each in unwanted(self.messages):
                each.is_unwanted = True
                if each.work is None:
                    self.remove(each)
                else:
                    each.work.cancel()  # it is the first one, and is taken out then


def unwanted(messages: deque[Message]) -> list[Message]:
    """Return the graphs all of whose keys were given up later, and which no later graph could depend on."""
    given_up: set[Any] = set()
    found = []
    for message in reversed(messages):
        if message.does is Does.GIVES_UP:
            given_up |= message.keys
        elif message.does is Does.WANTS:
            given_up -= message.keys
        elif message.does is Does.UPDATES:
            if not message.keys <= given_up:
                break
            found.append(message)
    return found
