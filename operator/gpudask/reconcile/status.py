"""Writer of the status: at most once a pass, where it changed, by its priority; events follow a successful write."""

from __future__ import annotations

from collections import deque

from gpudask.api import Json
from gpudask.api.reasons import Reason
from gpudask.api.resource import Cluster, Identity, parse_status
from gpudask.api.status import Status, epoch
from gpudask.clients.errors import ApiError
from gpudask.planning import conditions
from gpudask.planning.events import events
from gpudask.planning.ledger.counting import Ledger
from gpudask.planning.ledger.takeover import Arrival
from gpudask.planning.observed.observation import Observation
from gpudask.planning.status import counters, recount, without_counters, without_live_values, without_progress
from gpudask.reconcile.context import Context
from gpudask.reconcile.loop_memory import OwnCount
from gpudask.reconcile.resource_copy import ResourceCopy

# Write priorities: the part of a status, and how many seconds after the last write a change of it is written at the
# soonest. The first part that differs counts.
_COUNTERS_SECONDS = 15.0
_UNANSWERED_KEPT = 100  # of the counts whose writes failed
_WRITE_PRIORITIES = (
    (without_progress, 0.0),
    (without_live_values, 1.0),
    (without_counters, 5.0),
    (counters, _COUNTERS_SECONDS),
)


class StatusWriter:
    """The status of one cluster: as last computed (`status`), and as last written.

    `ledger`: what is counted; None: `status` is another operator's, or this one's before a restart. Then
    `came` is when it was seen to come, by this operator's clock; None: it was there before.

    A write is refused where somebody else, such as another operator, wrote the resource since `copy` saw it.
    """

    def __init__(self, context: Context, copy: ResourceCopy) -> None:
        self._context = context
        self._copy = copy
        self._written = written = parse_status(copy.body)
        # The `countedAt` of the status that was written last, as far as is known; of the last that was sent; and of
        # those that were sent since the former, any of which may have been written.
        self._base = self._sent = written.counted_at
        self._unanswered: deque[str] = deque(maxlen=_UNANSWERED_KEPT)
        self._sent_at = 0.0
        self._written_at = 0.0
        self._allowed_at: float | None = None  # when the limiter allows live figures, once they are due
        self.status = written
        self.ledger: Ledger | None = None
        self.came: Arrival | None = None
        self._own: OwnCount | None = None

    @property
    def is_inherited(self) -> bool:
        """Whether the status is still the one that another operator wrote, or this one before a restart."""
        return not self._written_at and bool(self._written.observed_generation)

    @property
    def last_count(self) -> OwnCount | None:
        """The last count that was sent here, with what is known by now; None: another operator's is gone on from."""
        return OwnCount(self._sent, self._sent_at, self.ledger) if self._sent_at and self.ledger is not None else None

    def inherit(self, came: Arrival | None, own: OwnCount | None) -> None:
        """Note when the status was seen to come, and what an earlier writer of this process has sent last.

        That is gone on from where it is the status, or comes to be: it may be on its way.
        """
        self.came, self._own = came, own
        self._go_on_with_own(self._base)

    def adopt(self) -> bool:
        """Continue from the copy's status, if it is another operator's; whether it is. What counts up never goes back.

        It is not where it counts what was sent here, or no further than what this one goes on from: then what is known
        here is more.
        """
        self._copy.status_is_newer = False
        there = parse_status(self._copy.body)
        told, base = there.counted_at, epoch(self._base) or 0.0
        is_ours = told in self._unanswered or (epoch(told) or 0.0) <= base
        self._written = there
        if is_ours and self.ledger is not None:
            return False
        if told != self._base:
            self.came = None
        self._base, self.status, self.ledger = told, there, None
        self._go_on_with_own(told)
        return not is_ours

    def _go_on_with_own(self, told: str) -> None:
        if self._own is not None and self._own.told == told:
            self._sent, self._sent_at, self.ledger = self._own.told, self._own.at, self._own.ledger

    async def write(self, cluster: Cluster, observation: Observation, status: Status) -> float | None:
        """Write `status` if it is due; in how many seconds to look again, None where nothing changes by itself.

        Raises:
            ApiError: it could not be written; a conflict: the resource changed since it was read.
            ClusterGoneError: there is no such cluster any more.
        """
        return await self._write(cluster, status, observation.now)

    async def write_invalid(self, body: Json, message: str, reason: Reason, counted: Ledger) -> float | None:
        """Write that the spec is invalid, or beyond the operator's limits, and what `counted` has; as `write`.

        Raises:
            ApiError: as `write`.
            ClusterGoneError: as `write`.
        """
        metadata = body["metadata"]
        generation = metadata.get("generation", 0)
        before = recount(self.status, counted)
        status = conditions.invalid(message, generation=generation, before=before, now=counted.at, reason=reason)
        identity = Identity(metadata["name"], metadata["namespace"], metadata["uid"])
        self.ledger = counted
        return await self._write(identity, status, counted.at, at_once=status.reason != self._written.reason)

    async def write_counters(self, cluster: Cluster, counted: Ledger) -> float | None:
        """Write what `counted` has, and nothing else that is new; as `write`.

        Raises:
            ApiError: as `write`.
            ClusterGoneError: as `write`.
        """
        self.ledger = counted
        return await self._write(cluster, recount(self.status, counted), counted.at)

    async def _write(self, cluster: Identity, status: Status, now: float, *, at_once: bool = False) -> float | None:
        self.status = status
        for part, seconds in _WRITE_PRIORITIES:
            if part(status) != part(self._written):
                wait = 0.0 if at_once else self._written_at + seconds - now
                if wait <= 0 and part in (without_counters, counters):
                    if self._allowed_at is None:
                        self._allowed_at = self._context.live_status_limiter.reserve(cluster.namespace, now)
                    wait = self._allowed_at - now
                if wait > 0 and not at_once:
                    return wait
                await self._put(cluster, status, now)
                break
        return _COUNTERS_SECONDS if any(pool.gpus_held for pool in status.pools) else None

    async def write_defect(self, body: Json, message: str) -> None:
        """Write that the operator itself fails on this cluster; once, until a pass succeeds.

        Raises:
            ApiError: as `write`.
            ClusterGoneError: as `write`.
        """
        metadata, now = body["metadata"], self._context.clock()
        status = conditions.defect(message, before=self._written, now=now)
        if without_live_values(status) == without_live_values(self._written):
            return
        await self._put(Identity(metadata["name"], metadata["namespace"], metadata["uid"]), status, now)

    async def _put(self, cluster: Identity, status: Status, now: float) -> None:
        before = self._written
        await self._send(cluster, status, now)
        for item in events(before, status):
            await self._context.events.record(
                cluster, item.reason, item.message, series=item.series, warning=item.warning, now=now
            )

    async def _send(self, cluster: Identity, status: Status, now: float) -> None:
        body = self._context.schema.fit(status.model_dump(mode="json", by_alias=True, exclude_none=True))
        self._sent, self._sent_at = status.counted_at, self.ledger.at if self.ledger is not None else now
        self._unanswered.append(status.counted_at)
        try:
            version = self._copy.version
            self._copy.status_written(
                await self._context.api.write_status(
                    cluster.namespace, cluster.name, uid=cluster.uid, version=version, status=body
                )
            )
        except ApiError as error:
            if error.invalid:
                self._context.schema.mark_doubtful()
            if error.not_found or error.invalid:  # also another cluster of this name: the test of the uid fails
                await self._context.api.confirm_gone(cluster, error, after_seconds=self._context.recheck_seconds)
            raise
        self._written, self._written_at, self._allowed_at = status, now, None
        self._base, self._own = status.counted_at, None  # none that was sent before can come any more
        self._unanswered.clear()
