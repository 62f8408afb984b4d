"""What ended on each worker since it came: how many tasks, and which of them were restricted.

A worker that got a task and ended it between two looks has not been idle; the counts show that, too.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any


class Ended:
    """Tasks that ended, with a result or an error, by worker's address. One entry a worker."""

    def __init__(self) -> None:
        self.plain: defaultdict[str, int] = defaultdict(int)
        self.restricted: defaultdict[str, int] = defaultdict(int)
        # (group, worker) of which a task ended since the last look: what is asked of each task is asked of the first
        self.recently_plain: set[tuple[Any, str]] = set()
        self.recently_restricted: set[tuple[Any, str]] = set()

    def on(self, address: str) -> int:
        """Return all tasks that ended on a worker."""
        return self.plain.get(address, 0) + self.restricted.get(address, 0)

    def failed(self, address: str, *, restricted: bool) -> None:
        """Count a task that failed, whether it is tried again or not."""
        if restricted:
            self.restricted[address] += 1
            self.recently_restricted.add((None, address))
        else:
            self.plain[address] += 1
            self.recently_plain.add((None, address))

    def take_recent(self) -> tuple[set[str], set[str]]:
        """Return the workers on which plain and restricted tasks ended since this was asked last."""
        plain, restricted = self.recently_plain, self.recently_restricted
        self.recently_plain, self.recently_restricted = set(), set()
        return {address for _, address in plain}, {address for _, address in restricted}

    def forget(self, address: str) -> None:
        """Drop a worker that has gone."""
        self.plain.pop(address, None)
        self.restricted.pop(address, None)
