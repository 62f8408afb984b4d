"""The pools' rows of a record: what each is made of, and its GPU-seconds, as the status has them.

The status counts GPU-seconds that were held, and those of them that were used. Where it comes to tell the causes of the
others, they are taken over from there: `_causes` is the one place.
"""

from __future__ import annotations

from gpudask.api.pool import Pool
from gpudask.api.record import MAX_POOLS, CauseSeconds, RecordedPool
from gpudask.api.spec import Spec
from gpudask.api.status import PoolStatus, Status

_LABELS = 16
WORKING, UNKNOWN = "working", "unknown"


def rows(spec: Spec, status: Status) -> list[RecordedPool]:
    """The rows of the pools that `status` has, also of those that the spec has no more."""
    pools = {pool.name: pool for pool in spec.pools}
    return [_row(pools.get(row.name), row) for row in status.pools[:MAX_POOLS]]


def _row(pool: Pool | None, status: PoolStatus) -> RecordedPool:
    gpu = pool.gpu if pool is not None else None
    selector = sorted((gpu.node_selector if gpu is not None else {}).items())[:_LABELS]
    return RecordedPool(
        name=status.name,
        gpus=gpu.count if gpu is not None else 0,
        node_selector=dict(selector),
        causes=_causes(status),
        owners=[],
    )


def _causes(status: PoolStatus) -> list[CauseSeconds]:
    """The pool's GPU-seconds by cause; of those held without work no cause is known here."""
    used = min(status.gpu_seconds_used, status.gpu_seconds_held)
    rest = round(max(0.0, status.gpu_seconds_held - used), 3)
    rows = [CauseSeconds(cause=WORKING, gpu_seconds=used), CauseSeconds(cause=UNKNOWN, gpu_seconds=rest)]
    return [row for row in rows if row.gpu_seconds]
