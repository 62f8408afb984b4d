"""The least that must be held so that enough work is done in time: dynamic programming over time. Pure numbers.

Units of capacity (pods, or nodes) are switched on and off. While `count` of them are on, `rates[count]` seconds of
work are done a second. By each time at least `due` and at most `possible` seconds of work are done. Every second of a
unit costs `cost`, every switching-on `cost * overhead_seconds`.

It is a relaxation: work is a fluid, shared by all units. So no schedule of whole tasks that keeps to `due` and
`possible` holds less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Ints = NDArray[np.integer]
_SLACK = 1e-6


class ImpossibleError(ValueError):
    """What is due cannot be done in time, however much is held."""


@dataclass(frozen=True)
class Work:
    """Seconds of work at the ends of equal steps: `due` at least, `possible` at most; `closed`: steps without units."""

    step_seconds: float
    due: Floats
    possible: Floats
    closed: int = 0


def least_held(work: Work, rates: Sequence[float], *, overhead_seconds: float, cost: float = 1.0) -> float:
    """The least cost.

    Steps are rounded in favour of the bound: a unit that is on in a part of a step works for all of it, and what that
    adds to its cost, a step at its beginning and one at its end at most, is taken off again.

    Raises:
        ImpossibleError: no number of units does it.
    """
    step = work.step_seconds
    most = np.ceil(work.possible / step - _SLACK).astype(int)
    least = np.minimum(np.maximum(np.ceil(work.due / step - _SLACK).astype(int), 0), most)
    gains = [int(np.ceil(rate - _SLACK)) for rate in rates]
    on = cost * (overhead_seconds - 2 * step) * np.arange(len(rates))[:, None]
    cheapest = np.full((len(rates), 1), np.inf)
    cheapest[0, 0] = 0.0
    lowest = number = 0
    while number < len(most):
        switched = _switch(cheapest, on)
        if number < work.closed:
            switched[1:] = np.inf
        steps = _steps_without_work(least, most, number, lowest) if number >= work.closed else 1
        bounds = (int(least[number]), int(most[number]))
        cheapest = _advance(switched, gains, lowest, bounds, steps * cost * step)
        lowest = bounds[0]
        number += steps
    found = float(cheapest.min())
    if not np.isfinite(found):
        raise ImpossibleError("the work is due before it can be done")
    return max(0.0, found)


def least_units(work: Work, rates: Sequence[float]) -> int:
    """The fewest units that do it when they are on all the time.

    Raises:
        ImpossibleError: not even all of them do.
    """
    for count in range(len(rates)):
        done = 0.0
        for number, (due, possible) in enumerate(zip(work.due, work.possible, strict=True)):
            done = min(done + (rates[count] * work.step_seconds if number >= work.closed else 0.0), possible)
            if done < due - _SLACK:
                break
        else:
            return count
    raise ImpossibleError("the work is due before it can be done")


def _switch(cheapest: Floats, on: Floats) -> Floats:
    """The least cost of being at each count, after switching: off is free, on costs."""
    up = np.minimum.accumulate(cheapest - on, axis=0) + on
    down = np.minimum.accumulate(cheapest[::-1], axis=0)[::-1]
    return np.asarray(np.minimum(up, down))


def _steps_without_work(least: Ints, most: Ints, number: int, lowest: int) -> int:
    """How many steps from `number` on are alike because all is done and nothing new is possible; at least one."""
    end = number
    while end < len(most) and least[end] == most[end] == lowest:
        end += 1
    return max(1, end - number)


def _advance(switched: Floats, gains: list[int], lowest: int, bounds: tuple[int, int], cost: float) -> Floats:
    """A step of work at each count: as much as is possible, because less is never better; what is late falls out.

    `lowest` is the work of column 0 before, `bounds` the least and most afterwards.
    """
    least, most = bounds
    after = np.full((len(gains), most - least + 1), np.inf)
    width = switched.shape[1]
    for count, gain in enumerate(gains):
        shift = lowest + gain - least  # of column 0
        row = switched[count] + count * cost
        capped = max(0, min(width, most - least - shift + 1))  # columns that stay at or below `most`
        begin = max(0, -shift)
        if begin < capped:
            after[count, begin + shift : capped + shift] = row[begin:capped]
        if capped < width:
            after[count, -1] = min(after[count, -1], float(row[max(capped, 0) :].min()))
    return after
