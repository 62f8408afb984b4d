"""Which worker gives how many of its waiting tasks to which other, so that all end together. Numbers only.

From the most loaded to the least, one task at a time, and only where the taker then still has less to do than the
giver had: so no task goes to and fro, and a slot is never left empty while a task waits elsewhere.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Load:
    """A worker: how many tasks it can run at once, has been given (running ones included), and whether it takes."""

    slots: int
    tasks: int
    takes: bool = True


def spread(loads: Mapping[Any, Load], *, rounds: float, slack: float, most: int) -> Counter[tuple[Any, Any]]:
    """Return (giver, taker) -> tasks, `most` at the most.

    A taker gets up to `rounds` waiting tasks for each of its slots, and none before half of them are used up: what it
    does not get now it gets as it goes on, when more is known about who is slow. It gets none either while it is less
    than `slack` rounds behind the most loaded worker: moving them would take longer than it saves.
    """
    tasks = {worker: load.tasks for worker, load in loads.items()}
    order = {worker: i for i, worker in enumerate(loads)}  # for equal loads: workers cannot be compared

    def giving(worker: Any) -> tuple[float, int, Any]:
        return -tasks[worker] / loads[worker].slots, order[worker], worker

    def taking(worker: Any) -> tuple[float, int, Any]:
        return (tasks[worker] + 1) / loads[worker].slots, order[worker], worker

    givers = [giving(worker) for worker, load in loads.items() if load.tasks > load.slots]
    highest = max((-load for load, *_ in givers), default=0.0)
    wants = [w for w, load in loads.items() if load.takes and load.tasks < load.slots * (1 + rounds / 2)]
    takers = [entry for entry in map(taking, wants) if entry[0] + slack < highest]
    heapq.heapify(givers)
    heapq.heapify(takers)
    moves: Counter[tuple[Any, Any]] = Counter()
    while givers and takers and most > 0 and takers[0][0] < -givers[0][0]:
        giver, taker = givers[0][-1], takers[0][-1]
        moves[giver, taker] += 1
        most -= 1
        tasks[giver] -= 1
        tasks[taker] += 1
        _renew(givers, giving(giver), stays=tasks[giver] > loads[giver].slots)
        _renew(takers, taking(taker), stays=tasks[taker] < loads[taker].slots * (1 + rounds))
    return moves


def _renew(heap: list[tuple[float, int, Any]], entry: tuple[float, int, Any], *, stays: bool) -> None:
    """Put the first entry of a heap where it belongs now, or take it out."""
    if stays:
        heapq.heapreplace(heap, entry)
    else:
        heapq.heappop(heap)
