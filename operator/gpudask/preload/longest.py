"""The longest chain of work that leads to a task, and all the work on the way: a bounded walk. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

Node = TypeVar("Node", bound=Hashable)


class TooLargeError(Exception):
    """The walk met more nodes and edges than it may."""


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
