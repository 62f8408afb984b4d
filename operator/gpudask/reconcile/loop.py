"""One cluster's loop: woken by events, it makes one pass after another, and tries again what failed, ever slower."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from gpudask.api.json_object import Json
from gpudask.api.resource import owner_key
from gpudask.clients.errors import ApiError, ClusterGoneError
from gpudask.clients.flow_control import CLUSTER, Backoff, RateLimiter
from gpudask.mirror.definitions import Definitions
from gpudask.mirror.sync import Mirror
from gpudask.reconcile.context import Context
from gpudask.reconcile.preload import There
from gpudask.reconcile.reconciler import RESYNC_SECONDS, Reconciler
from gpudask.reconcile.resource import News, ResourceCopy

_LOG = logging.getLogger(__name__)
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.5, 60.0  # of a pass that cannot be made at all
# How soon demand is looked at again of which only counts have changed; the preload says them about as often.
_COUNTS_SECONDS = 0.2
# Passes of one cluster, whoever wakes it: what a tenant makes flap costs others so much and no more.
_PASSES_A_SECOND, _PASSES_AT_ONCE = 5.0, 30.0


class ClusterLoop:
    """Everything that is done for one cluster is done here, one pass at a time."""

    def __init__(self, context: Context, body: Json, definitions: Definitions | None = None) -> None:
        self._context = context
        self._wake = asyncio.Event()
        self._edited = asyncio.Event()
        self._soon: asyncio.TimerHandle | None = None
        metadata = body["metadata"]
        self._namespace = metadata["namespace"]
        self._owner = owner_key(self._namespace, metadata["uid"])
        self._turns = RateLimiter(_PASSES_A_SECOND, _PASSES_AT_ONCE)
        self._copy = ResourceCopy(context, body)
        self.mirror = Mirror(context, definitions)
        self._reconciler = Reconciler(context, self._copy, self.mirror, self)

    def seen(self, body: Json) -> None:
        """Take in a newer copy of the resource. Our own status writes come back here too: those wake nobody."""
        news = self._copy.take(body)
        if news is News.EDITED:
            self._reconciler.edited()
            self._edited.set()
        if news is not News.NOTHING:
            self.wake()

    def wake(self) -> None:
        """Something changed: make a pass now."""
        self._wake.set()
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    def preloads_changed(self, now: There) -> None:
        """What this cluster shares with others is so now."""
        if self._reconciler.misses_preload(now):
            self.wake()

    def heard(self, *, urgent: bool = True) -> None:
        """The scheduler said something new: counts alone are looked at a moment later, or when it is our turn."""
        if urgent:
            self.wake()
        elif self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(_COUNTS_SECONDS, self._wake_in_turn)

    def _wake_in_turn(self) -> None:
        loop = asyncio.get_running_loop()
        self._soon = loop.call_at(self._context.count_turns.take(self._namespace, loop.time()), self.wake)

    async def run(self) -> None:
        """Make passes until the cluster is gone."""
        CLUSTER.set(self._owner)  # from here on requests take this cluster's turns
        self._wake.set()
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(self._context.first_turns.take(self._namespace, now) - now)
        failures, wait = 0, RESYNC_SECONDS
        backoff = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS, self._context.random)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._wake.wait()
                await self._turn()
                await self._context.pass_turns.begin()
                self._wake.clear()
                try:
                    wait = await self._reconciler.make()
                    failures = 0
                except ClusterGoneError:
                    raise
                except ApiError as error:
                    if error.ending:
                        _LOG.info("%s: its namespace is being deleted: nothing is made for it any more", self._copy.key)
                        return
                    failures += 1
                    delay = backoff.delay(failures, error.retry_after_seconds)
                    _LOG.warning("%s: %s; trying again in %.1f s", self._copy.key, error, delay)
                    await self._hold_off(delay)
                except Exception as error:  # noqa: BLE001 - one defect must not leave a cluster alone for ever
                    failures += 1
                    delay = backoff.delay(failures)
                    _LOG.exception("%s: a defect; trying again in %.1f s", self._copy.key, delay)
                    self._context.supervisor.restarts["pass"] += 1
                    await self._reconciler.tell_defect(error)
                    await self._hold_off(delay)
        except ClusterGoneError:
            _LOG.info("%s: gone", self._copy.key)
        finally:
            if self._soon is not None:
                self._soon.cancel()
            await self._reconciler.stop()

    async def _turn(self) -> None:
        """Wait for this cluster's next turn: at rest there is nothing to wait for."""
        now = asyncio.get_running_loop().time()
        turn = self._turns.take(now)
        if turn > now:
            await asyncio.sleep(turn - now)

    async def _hold_off(self, delay: float) -> None:
        """Wait before the next try, but for an edit, which is perhaps the cure."""
        self._edited.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._edited.wait()
        self._wake.set()
