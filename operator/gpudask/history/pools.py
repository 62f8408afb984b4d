"""The pools' rows of a record: what each is made of, and its ledger, as the status has it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from types import MappingProxyType

from gpudask.api.pool import Pool
from gpudask.api.record import (
    MAX_CAUSES,
    MAX_OWNERS,
    MAX_POOLS,
    MAX_SECONDS,
    CauseSeconds,
    OwnerSeconds,
    RecordedPool,
)
from gpudask.api.status import PoolStatus, Status
from gpudask.planning.ledger.totals import OTHERS

_LABELS = 16
_DIGITS = 3
# A counter that has less than this share of what was recorded began anew. A new leader's estimate may be a little less.
_RESTARTED = 0.5
_SAME_SECONDS = 0.01
_NO_SURPLUS: Mapping[str, float] = MappingProxyType({})


def rows(of: Iterable[Pool], status: Status) -> list[RecordedPool]:
    """The rows of the pools that `status` has; `of`: those of the spec, which may have no more some of them."""
    pools = {pool.name: pool for pool in of}
    return [_row(pools.get(row.name), row) for row in status.pools[:MAX_POOLS]]


class Ending(Enum):
    """What a record has of the end of its cluster, after which no pool comes back."""

    NONE = auto()  # the cluster is there
    GUESSED = auto()  # nobody had seen the end of some pods: who counts less knows less
    TOLD = auto()  # all of it


def merged(
    before: Iterable[RecordedPool],
    now: list[RecordedPool],
    *,
    ending: Ending = Ending.NONE,
    is_own: bool = False,
    surplus: Mapping[str, float] = _NO_SURPLUS,
) -> list[RecordedPool]:
    """`now`, and of those from `before` that the status has no more the ones that held GPUs: their seconds were paid.

    A pool that leaves the spec keeps what the spec said of it. One that comes back under its name is counted from 0 by
    the status, and goes on here. What the status has of pools that have no row of their own there counts as far as
    they have none here either.

    `ending`: what `before` has. `is_own`: who wrote that goes on with it; nobody else changes an end that was told.
    `surplus`: GPU-seconds by pool, which the counters of `now` had and have no more: as the ledger's.
    """
    if ending is Ending.TOLD and not is_own:
        return list(before)
    is_kept = ending is Ending.GUESSED and not is_own
    known, counted = {pool.name: pool for pool in before}, {pool.name: pool for pool in now}
    others, more = known.pop(OTHERS, None), counted.pop(OTHERS, None)
    rows = []
    for pool in counted.values():
        there = known.get(pool.name)
        if there is None:
            rows.append(pool)
        elif is_kept and _total(pool.causes) < _counted(there):
            rows.append(there)
        else:
            may_restart = ending is Ending.NONE
            rows.append(_gone_on(pool, there, surplus.get(pool.name, 0.0), may_restart=may_restart))
    rows += [_closed(pool) for pool in known.values() if pool.name not in counted and _total(pool.causes)]
    if more is not None:
        more = _without(more, rows, list(counted.values()))
        others = more if others is None or _total(more.causes) > _total(others.causes) else others
    rows += [others] if others is not None and _total(others.causes) else []
    return rows if len(rows) <= MAX_POOLS else [*rows[: MAX_POOLS - 1], *in_one(rows[MAX_POOLS - 1 :])]


def in_one(rows: Iterable[RecordedPool]) -> list[RecordedPool]:
    """The row for those that a record has no room for, so that the sum stays; none where they held nothing.

    What the status has of a pool under its name is left out: it comes again with the next one.
    """
    causes: list[CauseSeconds] = []
    owners: list[OwnerSeconds] = []
    for row in rows:
        is_whole = row.name == OTHERS
        causes = _added_causes(causes, row.causes if is_whole else row.causes_before)
        owners = _added_owners(owners, row.owners if is_whole else row.owners_before)
    others = RecordedPool.model_validate({"name": OTHERS})
    return [others.model_copy(update={"causes": causes, "owners": owners})] if _total(causes) else []


def are_in(rows: Iterable[RecordedPool], record: Iterable[RecordedPool]) -> bool:
    """Whether a record has what these rows count, each of a pool."""
    there = {row.name: _counted(row) for row in record}
    own = [row for row in rows if row.name != OTHERS]  # of which the record may have some under their own names
    return all(abs(there.get(row.name, math.inf) - _total(row.causes)) < _SAME_SECONDS for row in own)


def is_closed(row: RecordedPool) -> bool:
    """Whether the status has nothing any more of what the pool held, under its name."""
    return bool(row.causes) and row.causes == row.causes_before


def _without(others: RecordedPool, rows: list[RecordedPool], counted: list[RecordedPool]) -> RecordedPool:
    """`others` of a status without what is in `rows` beyond that status' own, `counted`: that stays there."""
    causes = {row.cause: row.gpu_seconds for row in others.causes}
    owners = {row.owner: row.gpu_seconds for row in others.owners}
    for sign, pools in ((-1.0, rows), (1.0, counted)):
        for pool in pools:
            for cause in pool.causes:
                if cause.cause in causes:
                    causes[cause.cause] += sign * cause.gpu_seconds
            for owner in pool.owners:
                if owner.owner in owners:
                    owners[owner.owner] += sign * owner.gpu_seconds
    left = [CauseSeconds(cause=name, gpu_seconds=_within(seconds)) for name, seconds in causes.items() if seconds > 0]
    own = [OwnerSeconds(owner=name, gpu_seconds=_within(seconds)) for name, seconds in owners.items() if seconds > 0]
    return others.model_copy(update={"causes": left, "owners": own})


def _gone_on(pool: RecordedPool, before: RecordedPool, surplus: float, *, may_restart: bool) -> RecordedPool:
    """The row of a pool whose present counters are `pool`'s, and which was recorded as `before`."""
    pool = _with_origin(pool, before)
    if may_restart and _total(pool.causes) + surplus < _counted(before) * _RESTARTED:
        before = _closed(before)
    return pool.model_copy(
        update={
            "causes": _added_causes(before.causes_before, pool.causes),
            "owners": _added_owners(before.owners_before, pool.owners),
            "causes_before": before.causes_before,
            "owners_before": before.owners_before,
        }
    )


def _counted(pool: RecordedPool) -> float:
    """The GPU-seconds that the status had under the pool's name."""
    return _total(pool.causes) - _total(pool.causes_before)


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
