"""The pools' rows of a record: what each is made of, and its ledger, as the status has it."""

from __future__ import annotations

from collections.abc import Iterable

from gpudask.api.pool import Pool
from gpudask.api.record import MAX_POOLS, CauseSeconds, OwnerSeconds, RecordedPool
from gpudask.api.status import PoolStatus, Status

_LABELS = 16


def rows(of: Iterable[Pool], status: Status) -> list[RecordedPool]:
    """The rows of the pools that `status` has; `of`: those of the spec, which may have no more some of them."""
    pools = {pool.name: pool for pool in of}
    return [_row(pools.get(row.name), row) for row in status.pools[:MAX_POOLS]]


def merged(before: Iterable[RecordedPool], now: list[RecordedPool]) -> list[RecordedPool]:
    """`now`, and of those from `before` that the status has no more the ones that held GPUs: their seconds were paid.

    A pool that leaves the spec keeps what the spec said of it.
    """
    known = {pool.name: pool for pool in before}
    rows = [_with_origin(pool, known.get(pool.name)) for pool in now]
    names = {pool.name for pool in now}
    gone = [pool for pool in known.values() if pool.name not in names and any(row.gpu_seconds for row in pool.causes)]
    return [*rows, *gone][:MAX_POOLS]


def _with_origin(pool: RecordedPool, before: RecordedPool | None) -> RecordedPool:
    if before is None or pool.gpus:
        return pool
    return pool.model_copy(update={"gpus": before.gpus, "node_selector": before.node_selector})


def _row(pool: Pool | None, status: PoolStatus) -> RecordedPool:
    gpu = pool.gpu if pool is not None else None
    selector = sorted((gpu.node_selector if gpu is not None else {}).items())[:_LABELS]
    return RecordedPool(
        name=status.name,
        gpus=gpu.count if gpu is not None else 0,
        node_selector=dict(selector),
        causes=[CauseSeconds(cause=row.cause, gpu_seconds=row.gpu_seconds) for row in status.causes],
        owners=[OwnerSeconds(owner=row.owner, gpu_seconds=row.gpu_seconds) for row in status.owners],
    )
