"""The best schedule of a small case, by trying all of them. Tasks are whole; times are whole seconds.

Independent of the oracle: no bounds, no fluid, no dynamic programming.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """A task that may begin at `earliest` and must be done by `latest`."""

    seconds: int
    earliest: int = 0
    latest: int = 0


def least_makespan(seconds: Sequence[int], earliest: Sequence[int], needs: Sequence[Sequence[int]], slots: int) -> int:
    """The shortest schedule: every order of the tasks, each as soon as it can; the best of these is optimal."""
    return min(_list_schedule(order, seconds, earliest, needs, slots) for order in _orders(needs))


def _orders(needs: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    for order in itertools.permutations(range(len(needs))):
        place = {number: i for i, number in enumerate(order)}
        if all(place[before] < place[number] for number in order for before in needs[number]):
            yield order


def _list_schedule(
    order: Sequence[int],
    seconds: Sequence[int],
    earliest: Sequence[int],
    needs: Sequence[Sequence[int]],
    slots: int,
) -> int:
    ends: dict[int, int] = {}
    begins: dict[int, int] = {}
    for number in order:
        begin = max([earliest[number], *(ends[before] for before in needs[number])])
        while not _has_slot(begin, seconds[number], begins, ends, slots):
            begin += 1
        begins[number], ends[number] = begin, begin + seconds[number]
    return max(ends.values())


def _has_slot(begin: int, seconds: int, begins: dict[int, int], ends: dict[int, int], slots: int) -> bool:
    times = range(begin, begin + seconds)
    return all(sum(1 for n in begins if begins[n] <= t < ends[n]) < slots for t in times)


def least_held(pieces: Sequence[Piece], pods: int, overhead: int) -> int | None:
    """The least seconds held; None where not everything can be done in time.

    Every begin of every piece on every pod; between two pieces a pod waits, or ends and starts again.
    """
    choices = [
        [(pod, begin) for pod in range(pods) for begin in range(p.earliest, p.latest - p.seconds + 1)] for p in pieces
    ]
    costs = (_cost(pieces, chosen, overhead) for chosen in itertools.product(*choices))
    return min((cost for cost in costs if cost is not None), default=None)


def _cost(pieces: Sequence[Piece], chosen: Sequence[tuple[int, int]], overhead: int) -> int | None:
    cost = 0
    free: dict[int, int] = {}
    for (pod, begin), piece in sorted(zip(chosen, pieces, strict=True), key=lambda pair: pair[0]):
        if begin < free.get(pod, 0):
            return None
        cost += piece.seconds + (min(begin - free[pod], overhead) if pod in free else overhead)
        free[pod] = begin + piece.seconds
    return cost
