"""What ended on each worker since it came: how many tasks, and which of them were restricted.

A worker that got a task and ended it between two looks has not been idle; the counts show that, too.
"""

from __future__ import annotations

from collections import defaultdict


class Ended:
    """Tasks that ended, with a result or an error, by worker's address. One entry a worker."""

    def __init__(self) -> None:
        self.plain: defaultdict[str, int] = defaultdict(int)
        self.restricted: defaultdict[str, int] = defaultdict(int)

    def on(self, address: str) -> int:
        """Return all tasks that ended on a worker."""
        return self.plain.get(address, 0) + self.restricted.get(address, 0)

    def failed(self, address: str, *, restricted: bool) -> None:
        """Count a task that failed, whether it is tried again or not."""
        ended = self.restricted if restricted else self.plain
        ended[address] += 1

    def forget(self, address: str) -> None:
        """Drop a worker that has gone."""
        self.plain.pop(address, None)
        self.restricted.pop(address, None)
