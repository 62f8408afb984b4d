"""The end of a cluster that this operator has not counted for: the ledger to go on with, by what others have written.

That is the last status of the cluster, where it was seen, or else what its record has.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpudask.api import Json
from gpudask.api.reasons import Cause
from gpudask.api.record import CauseSeconds, OwnerSeconds, Record, RecordedPool
from gpudask.api.resource import parse_status
from gpudask.api.spec import History
from gpudask.api.status import PoolStatus, Status
from gpudask.history.pools import is_closed
from gpudask.planning.ledger.causes import Holder
from gpudask.planning.ledger.counting import Ledger, PodCount, Seen, inherit
from gpudask.planning.ledger.totals import PoolCount


@dataclass(frozen=True)
class LastStatus:
    """The last that was seen of a cluster: its status, which another operator wrote, and what its record needs.

    `counted_at`: when the count in it was seen to come; None: it was there before. `ended`: when the cluster was seen
    deleted; None: it was there. Both by the operator's clock. `name`, `created`: the cluster's, and its
    creationTimestamp. `keep_seconds`: for how long its record is to stay; None: as long as any.
    """

    body: Json
    counted_at: float | None
    ended: float | None = None
    name: str = ""
    created: str = ""
    keep_seconds: float | None = None

    @classmethod
    def of(cls, body: Json, counted_at: float | None, ended: float | None = None) -> LastStatus:
        """That of a cluster's body, of which nothing else is kept."""
        metadata, spec = body.get("metadata", {}), body.get("spec")
        name, created = (str(metadata.get(key, "")) for key in ("name", "creationTimestamp"))
        keep = None
        with contextlib.suppress(ValueError):  # it cannot be read: nothing was made by it
            keep = History.model_validate(spec.get("history", {}) if isinstance(spec, dict) else {}).keep_seconds
        return cls({"status": body.get("status")}, counted_at, ended, name, created, keep)

    def shifted(self, seconds: float) -> LastStatus:
        """The same by a clock that is so many seconds ahead."""
        counted_at, ended = (None if at is None else at + seconds for at in (self.counted_at, self.ended))
        return replace(self, counted_at=counted_at, ended=ended)

    def gone_on(self, seen: Seen) -> tuple[Status, Ledger]:
        """That status, and its ledger up to now; `seen` without pools."""
        status = parse_status(self.body)
        seen = replace(seen, pools=frozenset(row.name for row in status.pools))
        return status, inherit(seen, status, self.counted_at, gone_by=self.ended)


def unfinished(record: Record, holders: Iterable[Holder], written: float) -> tuple[Status, Ledger]:
    """The last status of a cluster and its ledger, so far as `record` has them, which was `written` at a time.

    `holders`: the pods that held GPUs after that. They drain since then: their cluster is gone, or is about to be.
    `written`: by the operator's clock.
    """
    pools = {pool.name: _count(pool) for pool in record.pools if not is_closed(pool)}
    rows = {pod.uid: pod.gpu_seconds for pod in record.pods if not pod.restarted}
    pods = {}
    for holder in holders:
        if holder.placed <= written:
            known = replace(holder, rest=Cause.DRAINING)
            pods[holder.uid] = PodCount(known, {}, _by_cause(rows.get(holder.uid, ())))
            pools.setdefault(holder.pool, PoolCount())
    status = Status(pools=[PoolStatus(name=name) for name in pools])
    return status, Ledger(written, pools, pods)


def _count(pool: RecordedPool) -> PoolCount:
    """The counters that the status had: without those of earlier pools of the name."""
    seconds, owners = defaultdict(float, _by_cause(pool.causes)), defaultdict(float, _by_owner(pool.owners))
    for cause, earlier in _by_cause(pool.causes_before).items():
        seconds[cause] = max(0.0, seconds[cause] - earlier)
    for owner, earlier in _by_owner(pool.owners_before).items():
        owners[owner] = max(0.0, owners[owner] - earlier)
    return PoolCount(dict(seconds), dict(owners))


def _by_cause(rows: Iterable[CauseSeconds]) -> dict[Cause, float]:
    return {Cause(row.cause): row.gpu_seconds for row in rows if row.cause in set(Cause)}


def _by_owner(rows: Iterable[OwnerSeconds]) -> dict[str, float]:
    return {row.owner: row.gpu_seconds for row in rows}
