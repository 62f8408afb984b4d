"""The end of a cluster that this operator has not counted for: its pods that are gone, and the ledger to go on with.

That is what others have written: the last status of the cluster, where it was seen, or else what its record has.
"""

from __future__ import annotations

import contextlib
import math
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
from gpudask.planning.ledger.counting import Ledger, PodCount, Seen
from gpudask.planning.ledger.takeover import Arrival, inherit
from gpudask.planning.ledger.totals import PoolCount
from gpudask.planning.observed.pods import Pod

_GONE_KEPT = 1000  # pods that go are remembered until a status, or the record of their cluster, has counted them


class GonePods:
    """Pods that are gone, as last seen, and since when. Of more than `at_most` those stay whose cluster has few."""

    def __init__(self, at_most: int = _GONE_KEPT) -> None:
        self._at_most = at_most
        self._number = 0
        self._of: dict[str, dict[str, tuple[Pod, float]]] = {}  # by owner and uid, the last one last

    def of(self, owner: str) -> tuple[tuple[Pod, float], ...]:
        """Those of a cluster."""
        return tuple(self._of.get(owner, {}).values())

    def add(self, pod: Pod, at: float) -> None:
        """Remember one."""
        pods = self._of.setdefault(pod.owner, {})
        self._number += pod.uid not in pods
        pods.pop(pod.uid, None)
        pods[pod.uid] = pod, at
        if self._number > self._at_most:
            owner = max(self._of, key=lambda each: len(self._of[each]))
            self._remove(owner, next(iter(self._of[owner])))

    def forget(self, owner: str, until: float = math.inf) -> None:
        """Forget those of a cluster that are gone since then, or longer."""
        for uid in [uid for uid, (_, at) in self._of.get(owner, {}).items() if at <= until]:
            self._remove(owner, uid)

    def _remove(self, owner: str, uid: str) -> None:
        del self._of[owner][uid]
        self._number -= 1
        if not self._of[owner]:
            del self._of[owner]


@dataclass(frozen=True)
class LastStatus:
    """The last that was seen of a cluster: its status, which another operator wrote, and what its record needs.

    `came`: when the count in it was seen to come; None: it was there before. `ended`: when the cluster was seen
    deleted; None: it was there. Both by the operator's clock. `name`, `created`: the cluster's, and its
    creationTimestamp. `keep_seconds`: for how long its record is to stay; None: as long as any.
    """

    body: Json
    came: Arrival | None
    ended: float | None = None
    name: str = ""
    created: str = ""
    keep_seconds: float | None = None

    @classmethod
    def of(cls, body: Json, came: Arrival | None, ended: float | None = None) -> LastStatus:
        """That of a cluster's body, of which nothing else is kept."""
        metadata, spec = body.get("metadata", {}), body.get("spec")
        name, created = (str(metadata.get(key, "")) for key in ("name", "creationTimestamp"))
        keep = None
        with contextlib.suppress(ValueError):  # it cannot be read: nothing was made by it
            keep = History.model_validate(spec.get("history", {}) if isinstance(spec, dict) else {}).keep_seconds
        return cls({"status": body.get("status")}, came, ended, name, created, keep)

    def shifted(self, seconds: float) -> LastStatus:
        """The same by a clock that is so many seconds ahead."""
        came = None if self.came is None else self.came.shifted(seconds)
        return replace(self, came=came, ended=None if self.ended is None else self.ended + seconds)

    def gone_on(self, seen: Seen) -> tuple[Status, Ledger]:
        """That status, and its ledger up to now; `seen` without pools."""
        status = parse_status(self.body)
        seen = replace(seen, pools=frozenset(row.name for row in status.pools))
        return status, inherit(seen, status, self.came, gone_by=self.ended)


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
