"""The passes over one object, one after another: woken by events, limited, and tried again ever slower where they fail.

What a pass does is the reconciler's of its kind: a cluster's, a job's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from gpudask.api.reasons import Reason
from gpudask.clients.errors import ApiError, ClusterGoneError
from gpudask.clients.flow_control import CLUSTER, Backoff, RateLimiter
from gpudask.reconcile.context import Context
from gpudask.reconcile.loop_memory import reason_of

_LOG = logging.getLogger(__name__)
# The slow resync, which reads the caches only.
RESYNC_SECONDS = 600.0
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.5, 60.0  # of a pass that cannot be made at all
# Passes of one object, whatever wakes it: what a tenant makes flap costs others so much and no more.
_PASSES_PER_SECOND, _PASSES_BURST = 5.0, 30.0


class PassLoop:
    """Calls `reconcile`, whose result is its requeue_after in seconds, and after a defect `report_defect`.

    `key`: the object's `namespace/name`, for logs. `owner`: its `owner_key`, as which its requests count.
    `is_urgent`: the first pass waits for none of other objects.
    """

    def __init__(
        self,
        context: Context,
        key: str,
        owner: str,
        reconcile: Callable[[], Awaitable[float]],
        report_defect: Callable[[Exception], Awaitable[None]],
        *,
        is_urgent: bool = False,
    ) -> None:
        self._context = context
        self._key = key
        self._owner = owner
        self._reconcile = reconcile
        self._report_defect = report_defect
        self._is_urgent = is_urgent
        self._wake = asyncio.Event()
        self._retry_now = asyncio.Event()
        self._limiter = RateLimiter(_PASSES_PER_SECOND, _PASSES_BURST)

    def wake(self) -> None:
        """Make a pass now: something changed."""
        self._wake.set()

    def retry_now(self) -> None:
        """End the wait after a failure, also after that of the pass that is under way: an edit may be the cure."""
        self._retry_now.set()

    async def run(self) -> None:
        """Make passes until the object is gone, or its namespace is being deleted."""
        CLUSTER.set(self._owner)  # from here on requests count as this object's
        self._wake.set()
        if not self._is_urgent:
            await self._wait_to_begin()
        failures, wait = 0, RESYNC_SECONDS
        backoff = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS, self._context.random)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._wake.wait()
                await self._wait_for_limiter()
                await self._context.pass_queue.slot_for_one_step()
                self._wake.clear()
                self._retry_now.clear()
                try:
                    with self._context.metrics.pass_seconds.time():
                        wait = await self._reconcile()
                    failures = 0
                except ClusterGoneError:
                    raise
                except ApiError as error:
                    if error.ending:
                        _LOG.info("%s: its namespace is being deleted: nothing is made for it any more", self._key)
                        return
                    failures += 1
                    self._context.metrics.count_error(reason_of(error))
                    delay = backoff.delay(failures, error.retry_after_seconds)
                    _LOG.warning("%s: %s; trying again in %.1f s", self._key, error, delay)
                    await self._wait_to_retry(delay)
                except Exception as error:  # noqa: BLE001 - one defect must not leave an object alone for ever
                    failures += 1
                    self._context.metrics.count_error(Reason.OPERATOR_FAILED)
                    delay = backoff.delay(failures)
                    _LOG.exception("%s: a defect; trying again in %.1f s", self._key, delay)
                    self._context.supervisor.restarts["pass"] += 1
                    await self._report_defect(error)
                    await self._wait_to_retry(delay)
        except ClusterGoneError:
            _LOG.info("%s: gone", self._key)

    async def _wait_to_begin(self) -> None:
        """Wait for the turn of the first pass, among those of its namespace."""
        namespace, _, _ = self._key.partition("/")
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(self._context.first_pass_limiter.reserve(namespace, now) - now)

    async def _wait_for_limiter(self) -> None:
        """Wait until this object's rate limiter allows a pass: at rest there is nothing to wait for."""
        now = asyncio.get_running_loop().time()
        start = self._limiter.reserve(now)
        if start > now:
            await asyncio.sleep(start - now)

    async def _wait_to_retry(self, delay: float) -> None:
        """Wait before the next try, unless somebody asks for it now."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._retry_now.wait()
        self._wake.set()
