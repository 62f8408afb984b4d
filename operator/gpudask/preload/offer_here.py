"""Runs on a worker, sent there by value: changes what it offers. No import from this package: it may not be there."""

from __future__ import annotations

from typing import Any


async def set_offer(resources: dict[str, float], dask_worker: Any) -> None:
    """Set these resources on the worker, which tells the scheduler; the others it offers stay.

    `gpudask.has_gpu` looks at what is only lent: a lent GPU is none.
    """
    dask_worker.gpudask_lent = frozenset(name for name, amount in resources.items() if amount > 0)
    await dask_worker.set_resources(**resources)
