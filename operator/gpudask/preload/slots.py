"""Whether a worker can run a task by what it offers, and how many such tasks at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState

    from .counts import Requirement


def slots_of(ws: WorkerState, requirement: Requirement) -> int:
    """Return the least of the worker's threads and what its offers have room for; 0 where it lacks something.

    Who asks for 0 of something asks for a worker that knows it: one that does not would close.
    """
    slots = ws.nthreads
    for name, quantity in requirement:
        offered = ws.resources.get(name)
        if offered is None or offered < quantity:
            return 0
        if quantity > 0:
            slots = min(slots, int(offered / quantity))
    return slots


def has_offer(ws: WorkerState, restrictions: dict[str, float]) -> bool:
    """Return whether a worker offers each resource, and enough of it. To ask for 0 is to ask for a worker that has it.

    A worker closes when it gets a task that asks for a resource which it does not know, whatever the quantity.
    """
    try:
        return all(name in ws.resources and ws.resources[name] >= needed for name, needed in restrictions.items())
    except TypeError:  # a quantity that is no number
        return False
