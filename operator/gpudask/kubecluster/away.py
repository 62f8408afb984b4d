"""A cluster manager whose scheduler is away: it says why, to whoever waits for it, and looks for another way there.

Dask itself says no more than that a connection was lost: the futures that were pending are cancelled at once, and a
`Client` that finds no scheduler for 30 s closes for good. What keeps the scheduler away is found out in outage.py.
"""

# mypy: disallow-untyped-calls=False, disallow-any-generics=False
from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Generator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self

from distributed.client import Client, default_client
from distributed.core import Status

from gpudask.api.stock import COMM_PORT
from gpudask.kubecluster import forwarding, routes
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.linked import LinkedCluster
from gpudask.kubecluster.outage import Cause, Outage, cause_of
from gpudask.kubecluster.progress import Progress

logger = logging.getLogger(__name__)

_NO_SERVER = Cause("why is not known without an API server", "See the cluster: kubectl describe gdc")
# Dask's Client awaits its cluster, drops what that raises, and asks for the address: that raises it again, there alone.
_raised: ContextVar[KubeClusterError | None] = ContextVar("raised", default=None)


class AwayCluster(LinkedCluster):
    """What `KubeCluster` does when it loses its scheduler."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._outage: Outage | None = None
        self._cause = _NO_SERVER  # of the outage, as last found out
        self._told: KubeClusterError | None = None  # what the last who waited in vain were told
        self._following_outage: asyncio.Task[None] | None = None
        self._choosing = asyncio.Lock()
        self._chosen = -math.inf  # when a way was chosen again, by the monotonic clock
        super().__init__(*arguments, **options)

    @property
    def scheduler_address(self) -> str:
        """Where the scheduler is dialled.

        Raises:
            KubeClusterError: to a `Client` that is being made and waited for the scheduler in vain.
        """
        refused = _raised.get()
        _raised.set(None)
        if refused is not None and refused is self._told:
            raise refused
        return str(super().scheduler_address)

    def __await__(self) -> Generator[Any, Any, Self]:
        """Start it; later, wait for a scheduler that is away.

        Raises:
            KubeClusterError: it stays away, and why.
        """
        was_there = self.status == Status.running
        yield from super().__await__()
        if was_there:
            yield from self._be_reached().__await__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None and self._outage is not None:
                self.sync(self._add_why, error)
        finally:
            super().__exit__(kind, error, trace)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None and self._outage is not None:
                await self._add_why(error)
        finally:
            await super().__aexit__(kind, error, trace)

    async def why_away(self) -> Cause:
        """Why the scheduler is not reached."""
        if self._server is None:
            return _NO_SERVER
        forward = self._forwards.get(COMM_PORT)
        cause = await cause_of(self._server, self.name, forward.trouble if forward else "")
        self._body = cause.body or self._body
        return cause

    # ------------------------------------------------------------------ following an outage

    def _lost(self) -> None:
        self._outage = Outage.now(self._timing.clock)
        self._following_outage = asyncio.create_task(self._follow(self._outage))

    def _found_again(self) -> None:
        self._end_outage()

    def _end_outage(self) -> None:
        if self._following_outage is not None:
            self._following_outage.cancel()
        self._outage = self._following_outage = self._told = None

    async def _follow(self, outage: Outage) -> None:
        """Say why when it lasts longer than a restart, and go on finding out; look for another way meanwhile."""
        await self._timing.clock.sleep(self._timing.outage_tell_seconds)
        self._cause = await self.why_away()
        logger.warning("gpudask: %s", self._error(outage, self._cause))
        telling = asyncio.create_task(self._tell_in_time(outage))
        try:
            while True:
                await self._find_another_way(self._cause)
                timing = self._timing
                await timing.clock.sleep(timing.outage_look_seconds if self._waiting() else timing.outage_idle_seconds)
                self._cause = await self.why_away()
        finally:
            telling.cancel()

    async def _tell_in_time(self, outage: Outage) -> None:
        """Say why again when Dask's clients are about to give up, and to each whose own patience is about to end.

        What was found out last is said: asking now could take longer than they wait.
        """
        is_told = False
        while True:
            error = self._error(outage, self._cause)
            if not is_told and outage.seconds >= _patience_seconds():
                is_told = True
                logger.warning("gpudask: %s", error)
            for client in self._waiting():
                if outage.seconds >= _patience_seconds(client):
                    _cancel_pending(client, error)
            await self._timing.clock.sleep(self._timing.outage_tick_seconds)

    def _waiting(self) -> list[Any]:
        """The clients of this cluster that look for the scheduler."""
        clients = list(Client._instances)  # noqa: SLF001 - Dask keeps no list of a cluster's clients
        return [client for client in clients if client.cluster is self and client.status == "connecting"]

    def _error(self, outage: Outage, cause: Cause) -> KubeClusterError:
        give_up = f"Dask's clients close after {forwarding.give_up_seconds():g} s without it"
        return KubeClusterError(
            f"the scheduler of cluster {self.name!r} is away for {outage.seconds:.0f} s",
            reason=cause.reason,
            next_step=f"{cause.next_step}. {give_up}: once it is back, make a new Client(cluster)",
        )

    async def _add_why(self, error: BaseException) -> None:
        """Let an error that leaves the block say that the scheduler was away: Dask's own do not say why."""
        outage = self._outage
        if outage is not None and not isinstance(error, KubeClusterError):
            error.add_note(f"gpudask: {self._error(outage, await self.why_away())}")

    # ------------------------------------------------------------------ being reached again

    async def _be_reached(self) -> None:
        """Wait until somebody new would reach the scheduler, almost as long as a `Client` that is being made would."""
        outage = self._outage or Outage.now(self._timing.clock)  # one that was not seen so far
        waiting, patience_seconds = Outage.now(self._timing.clock), _patience_seconds(self._unmade())
        args = self.security.get_connection_args("client")
        limit_seconds = self._timing.outage_answer_seconds
        with Progress(f"cluster {self.name}", self._timing, quiet=self.quiet) as progress:
            while not await routes.answers(str(super().scheduler_address), args, limit_seconds):
                cause = await self.why_away()
                error = self._error(outage, cause)
                if waiting.seconds > patience_seconds:
                    if (client := self._unmade()) is not None:
                        await client._close()  # noqa: SLF001 - it does so itself only where a connection fails
                    self._told = error
                    _raised.set(error)
                    raise error
                progress.show([f"the scheduler is away: {cause.reason}"])
                await self._find_another_way(cause)
                await self._timing.clock.sleep(self._timing.outage_pause_seconds)
        self._told = None

    def _unmade(self) -> Any:
        """The `Client` of this cluster that is just being made, where it is to be the default one; else None."""
        with contextlib.suppress(ValueError):  # there is none
            client = default_client()
            if client.cluster is self and client.scheduler is None:
                return client
        return None

    async def _find_another_way(self, cause: Cause) -> None:
        """Choose again where a scheduler is there, and its outside address does not answer: that may be another."""
        async with self._choosing:
            is_due = self._timing.clock.monotonic() > self._chosen + self._timing.outage_choose_seconds
            if not cause.has_ready_pod or self._is_inside or COMM_PORT in self._forwards or not is_due:
                return
            self._chosen = self._timing.clock.monotonic()
            before, forwards = self.scheduler_comm, dict(self._forwards)
            try:
                route = await self._from_outside(self.require_server(), forwards)
            except BaseException as error:
                new = {port: forward for port, forward in forwards.items() if port not in self._forwards}
                await forwarding.stop(new)
                if not isinstance(error, KubeClusterError):
                    raise
                logger.info("no other way to the scheduler of cluster %s: %s", self.name, error)
                return
            self._forwards.update(forwards)
            self._take(route)
            if before is not None:
                await before.close_rpc()

    async def _close(self) -> None:
        self._end_outage()
        await super()._close()


def _patience_seconds(client: Any = None) -> float:
    """How long a scheduler is waited for: a little less than this client of Dask's does, or any that says nothing."""
    seconds = forwarding.give_up_seconds() if client is None else float(client._timeout)  # noqa: SLF001 - its `timeout=`
    return seconds * 5 / 6


def _cancel_pending(client: Any, error: KubeClusterError) -> None:
    """Cancel, with the cause, what waits in a client that will close: Dask would give no reason.

    One by one: the program may submit meanwhile, in a thread of its own.
    """
    for key in list(client.futures):
        state = client.futures.pop(key, None)
        if state is not None:
            state.cancel(reason="scheduler-away", msg=str(error))
