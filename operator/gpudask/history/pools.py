"""The pools' rows of a record: what each is made of, and its ledger, as the status has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from gpudask.api.pool import Pool
from gpudask.api.record import MAX_CAUSES, MAX_OWNERS, MAX_POOLS, MAX_SECONDS, CauseSeconds, OwnerSeconds, RecordedPool
from gpudask.api.status import PoolStatus, Status

_LABELS = 16
_DIGITS = 3
# A counter that has less than this share of what was recorded began anew. A new leader's estimate may be a little less.
_RESTARTED = 0.5


def rows(of: Iterable[Pool], status: Status) -> list[RecordedPool]:
    """The rows of the pools that `status` has; `of`: those of the spec, which may have no more some of them."""
    pools = {pool.name: pool for pool in of}
    return [_row(pools.get(row.name), row) for row in status.pools[:MAX_POOLS]]


def merged(before: Iterable[RecordedPool], now: list[RecordedPool]) -> list[RecordedPool]:
    """`now`, and of those from `before` that the status has no more the ones that held GPUs: their seconds were paid.

    A pool that leaves the spec keeps what the spec said of it. One that comes back under its name is counted from 0 by
    the status, and goes on here.
    """
    known = {pool.name: pool for pool in before}
    rows = [_gone_on(pool, known[pool.name]) if pool.name in known else pool for pool in now]
    names = {pool.name for pool in now}
    gone = [pool for pool in known.values() if pool.name not in names and _total(pool.causes)]
    return [*rows, *(_closed(pool) for pool in gone)][:MAX_POOLS]


def _gone_on(pool: RecordedPool, before: RecordedPool) -> RecordedPool:
    """The row of a pool whose present counters are `pool`'s, and which was recorded as `before`."""
    pool = _with_origin(pool, before)
    counted = _total(before.causes) - _total(before.causes_before)
    if _total(pool.causes) < counted * _RESTARTED:
        before = _closed(before)
    return pool.model_copy(
        update={
            "causes": _added_causes(before.causes_before, pool.causes),
            "owners": _added_owners(before.owners_before, pool.owners),
            "causes_before": before.causes_before,
            "owners_before": before.owners_before,
        }
    )


def _closed(pool: RecordedPool) -> RecordedPool:
    """The row, when the status has dropped its counters."""
    return pool.model_copy(update={"causes_before": pool.causes, "owners_before": pool.owners})


def _total(causes: Iterable[CauseSeconds]) -> float:
    return sum(row.gpu_seconds for row in causes)


def _added_causes(before: Iterable[CauseSeconds], more: Iterable[CauseSeconds]) -> list[CauseSeconds]:
    sums: defaultdict[str, float] = defaultdict(float)
    for row in (*before, *more):
        sums[row.cause] += row.gpu_seconds
    return [CauseSeconds(cause=cause, gpu_seconds=_within(sums[cause])) for cause in [*sums][:MAX_CAUSES]]


def _added_owners(before: Iterable[OwnerSeconds], more: Iterable[OwnerSeconds]) -> list[OwnerSeconds]:
    """The sums; of more owners than are kept apart the later ones are added up under an empty name."""
    sums: dict[str, float] = {}
    for row in (*before, *more):
        has_room = len(sums) - ("" in sums) < MAX_OWNERS - 1
        owner = row.owner if row.owner in sums or has_room else ""
        sums[owner] = sums.get(owner, 0.0) + row.gpu_seconds
    return [OwnerSeconds(owner=owner, gpu_seconds=_within(seconds)) for owner, seconds in sums.items()]


def _within(seconds: float) -> float:
    return min(round(seconds, _DIGITS), MAX_SECONDS)


def _with_origin(pool: RecordedPool, before: RecordedPool) -> RecordedPool:
    if pool.gpus:
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
        causes_before=[],
        owners_before=[],
    )
