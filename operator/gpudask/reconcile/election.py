"""Leader election: of all operators of one installation one leads, and the others stand by with warm caches.

The rules are those of Kubernetes' own controllers
(https://pkg.go.dev/k8s.io/client-go/tools/leaderelection). A Lease names its holder, who renews it. Any other candidate
that saw it unchanged for `lease_seconds`, by its own monotonic clock, may acquire it. Every write carries the version
that was read: of two candidates that try, one succeeds. A holder that could not renew for `renew_seconds`, counted from
the start of its last success, stops: that is before anybody can have seen the Lease unchanged for longer. So wrong wall
clocks do not matter, only clocks whose speeds differ by a third.
docs/adr/0029-leader-election.md has what a stale leader may do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from gpudask.api import Json
from gpudask.clients.errors import ApiError
from gpudask.clients.lease import Record

_LOG = logging.getLogger(__name__)
LONGEST_LEASE_SECONDS = 60.0  # of another's Lease: a number in it that makes no sense does not lock everybody out
_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations, shorter than client-go's 15, 10 and 2 s: standbys have warm caches, so a new leader costs little.

    `lease_seconds` > `renew_seconds` > `retry_seconds`. An attempt may take half of `renew_seconds`: one that hangs is
    not the last.
    """

    lease_seconds: float = 9.0
    renew_seconds: float = 6.0
    retry_seconds: float = 1.0


class Lock(Protocol):
    """The lock that the leader holds: `clients.lease.Lease`."""

    async def get(self) -> Record | None:
        """Get its content; None: there is none."""

    async def write(self, spec: Json, *, version: str) -> Record:
        """Write it, if it is still at `version`; empty: if there is none."""

    def changes(self) -> AsyncGenerator[Record]:
        """Watch it: its content after each write."""


class Election:
    """One candidate, `identity`.

    `lead` starts all work, and is cancelled if that takes longer than we lead; `stand_by` ends it. No other candidate
    has this identity, but for one that is dead: that one's Lease is acquired at once.
    """

    def __init__(
        self,
        lock: Lock,
        identity: str,
        lead: Callable[[], Awaitable[None]],
        stand_by: Callable[[], Awaitable[None]],
        *,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = lock
        self._identity = identity
        self._lead = lead
        self._stand_by = stand_by
        self._timing = timing or Timing()
        self._clock = clock
        self._leads_until = _NEVER  # we lead until then, by `clock`
        self._record: Record | None = None  # as last seen
        self._observed_at = _NEVER  # when it was first seen so
        self._is_ours = False  # whether `_record` is the answer to our own last write
        self._answered_at = _NEVER
        self._released = asyncio.Event()

    def leads(self) -> bool:
        """Whether this candidate may write now."""
        return self._clock() < self._leads_until

    def unanswered_seconds(self) -> float:
        """How long the API server has not answered about the Lease."""
        return self._clock() - self._answered_at

    async def run(self) -> None:
        """Stand by, lead, and stand by again, until cancelled; then release the Lease."""
        watch = asyncio.create_task(self._watch(), name="watch of the Lease")
        try:
            while True:
                await self._acquire()
                await self._lead_until_lost()
        finally:
            watch.cancel()
            await self._release()

    async def _acquire(self) -> None:
        while not await self._attempt(self._timing.renew_seconds / 2):
            with contextlib.suppress(TimeoutError):
                held = self._held_seconds()
                async with asyncio.timeout(min(held, self._pause()) if held > 0 else self._pause()):
                    await self._released.wait()
            self._released.clear()

    async def _lead_until_lost(self) -> None:
        _LOG.info("%s leads", self._identity)
        leading = asyncio.ensure_future(self._lead())
        try:
            await self._renew()
        finally:
            self._leads_until = _NEVER
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)
            await self._stand_by()
            _LOG.info("%s leads no more", self._identity)

    async def _renew(self) -> None:
        """Renew the Lease; returns when it is lost."""
        while True:
            await asyncio.sleep(min(self._pause(), max(0.0, self._leads_until - self._clock())))
            left = self._leads_until - self._clock()
            if left <= 0:
                _LOG.warning("the Lease could not be renewed for %.0f s", self._timing.renew_seconds)
                return
            if not await self._attempt(min(left, self._timing.renew_seconds / 2)) and self._is_taken():
                _LOG.warning("the Lease was taken by %s", self._record.holder if self._record else "nobody")
                return

    async def _attempt(self, seconds: float) -> bool:
        """Try to acquire or renew it, for so long at most; whether that was successful."""
        try:
            async with asyncio.timeout(seconds):
                return await self._acquire_or_renew()
        except ApiError as error:
            if error.status:
                self._answered_at = self._clock()
            if not error.conflict:
                _LOG.warning("the Lease: %s", error)
        except TimeoutError:
            _LOG.warning("the Lease: no answer in %.1f s", seconds)
        except Exception:  # noqa: BLE001 - a candidate that gave up for ever would leave no leader
            _LOG.exception("the Lease: a defect")
        return False

    async def _acquire_or_renew(self) -> bool:
        if self._is_ours:
            try:
                await self._write(self._spec())
            except ApiError as error:
                if not error.conflict:
                    raise  # else somebody wrote it: read who
            else:
                return True
        self._observe(await self._lock.get())
        if self._held_seconds() > 0:
            return False
        await self._write(self._spec())
        return True

    async def _write(self, spec: Json) -> None:
        started = self._clock()
        self._is_ours = False  # until it is answered
        self._observe(await self._lock.write(spec, version=self._record.version if self._record else ""))
        self._is_ours = True
        if spec["holderIdentity"]:
            self._leads_until = started + self._timing.renew_seconds

    def _observe(self, record: Record | None) -> None:
        self._answered_at = self._clock()
        if record is None or self._record is None or record.version != self._record.version:
            self._record, self._observed_at = record, self._clock()
            self._is_ours = False  # or else our next write would replace what another has written

    def _changed(self, record: Record) -> None:
        """Process an event of the watch. It may be old: then it resets the time for which the Lease was seen unchanged.

        The leader ignores it: the answers to its own requests are newer.
        """
        if not record.holder:
            self._released.set()
        if self._leads_until == _NEVER:
            self._observe(record)

    def _held_seconds(self) -> float:
        """How long the Lease as last seen keeps this candidate out; 0 or less: no more."""
        record = self._record
        if record is None or record.holder in ("", self._identity):
            return 0.0
        seconds = min(float(record.seconds) or self._timing.lease_seconds, LONGEST_LEASE_SECONDS)
        return seconds - (self._clock() - self._observed_at)

    def _is_taken(self) -> bool:
        """Whether somebody else is known to hold it."""
        return not self._is_ours and self._record is not None and self._record.holder != self._identity

    def _spec(self) -> Json:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        record = self._record
        ours = record is not None and record.holder == self._identity
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": round(self._timing.lease_seconds),
            "acquireTime": record.acquired if record is not None and ours and record.acquired else now,
            "renewTime": now,
            "leaseTransitions": (record.transitions if record else 0) + (record is not None and not ours),
        }

    async def _release(self) -> None:
        """Release the Lease, so that another can acquire it at once. Called when no work of ours runs any more."""
        try:
            async with asyncio.timeout(self._timing.retry_seconds):
                try:
                    await self._release_ours()
                except ApiError as error:
                    if not error.conflict:
                        raise
                    await self._release_ours()  # somebody else wrote it, or so it seemed: who?
        except (ApiError, TimeoutError) as error:
            _LOG.info("the Lease was not released, it expires: %s", error)

    async def _release_ours(self) -> None:
        if not self._is_ours:
            self._observe(await self._lock.get())
        if self._record is not None and self._record.holder == self._identity:
            await self._write(self._spec() | {"holderIdentity": "", "leaseDurationSeconds": 1})

    async def _watch(self) -> None:
        """Watch the Lease, so that a release is noticed at once; without the watch, by the next read."""
        while True:
            try:
                async with aclosing(self._lock.changes()) as changes:
                    async for record in changes:
                        self._changed(record)
            except ApiError as error:
                _LOG.debug("the Lease is not watched, but read every %.0f s: %s", self._timing.retry_seconds, error)
            except Exception:  # noqa: BLE001 - see above
                _LOG.exception("the watch of the Lease: a defect")
            await asyncio.sleep(self._pause())

    def _pause(self) -> float:
        return self._timing.retry_seconds * random.uniform(1.0, 1.2)  # noqa: S311 - spreads the candidates
