"""Runs on a worker, sent there by value: changes what it offers. No import from this package: it may not be there."""

from __future__ import annotations

from typing import Any

from distributed import Status
from distributed.worker_state_machine import UnpauseEvent


async def set_offer(lent: dict[str, float], number: int, dask_worker: Any) -> dict[str, float]:
    """Offer what is `lent`, and nothing else beyond the worker's own, and tell the scheduler.

    The worker remembers what is only lent, so its own offers stand, and a lent GPU is none for `gpudask.has_gpu`. What
    was sent before, and comes after something with a higher number, does nothing. Return how much the worker offers of
    everything that was or is lent.
    """
    before: dict[str, float] = getattr(dask_worker, "gpudask_lent", {})
    if number <= getattr(dask_worker, "gpudask_offer_number", -1):
        return {}
    dask_worker.gpudask_offer_number = number
    offered = dask_worker.state.total_resources
    now = {name: amount for name, amount in lent.items() if name in before or not offered.get(name)}
    dask_worker.gpudask_lent = now
    try:
        await dask_worker.set_resources(**dict.fromkeys(before, 0.0) | now)
    finally:
        await begin_waiting(f"gpudask-offer-{number}", dask_worker)
    return {name: offered[name] for name in before | now}


async def begin_waiting(stimulus_id: str, dask_worker: Any) -> bool:
    """Begin the tasks that wait and may begin now; return True.

    A worker looks at the first of those that wait for a resource, and only when a task comes or ends: not when there is
    more of the resource, and not when the first is taken from it.
    """
    if dask_worker.status == Status.running:
        dask_worker.handle_stimulus(UnpauseEvent(stimulus_id=stimulus_id))
    return True
