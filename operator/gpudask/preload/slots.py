"""How many tasks of a requirement a worker can run at once."""

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
