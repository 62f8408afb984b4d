"""An outage of the scheduler: its cause as the API server knows it, warnings, and the reconnect.

Dask itself says no more than that a connection was lost: the futures that were pending are cancelled at once, and a
`Client` that finds no scheduler for 30 s closes for good.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import weakref
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from distributed.client import Client, default_client

from gpudask.api import Json
from gpudask.kubecluster.display import Progress
from gpudask.kubecluster.errors import KubeClusterError, where_to_look, why_no_scheduler, why_scheduler_waits
from gpudask.kubecluster.forward.route import give_up_seconds
from gpudask.kubecluster.kube.pods import is_ready, list_pods
from gpudask.kubecluster.kube.request import FORBIDDEN, NOT_FOUND
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.kube.session import Purpose, requests_for
from gpudask.kubecluster.resource import Resource
from gpudask.kubecluster.scheduler.connection import SchedulerConnection
from gpudask.kubecluster.timing import Clock, Timing

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cause:
    """The cause of an outage.

    Attributes:
        reason: as whoever said it put it.
        next_step: what to do.
        body: the cluster as it is now; empty where it could not be read.
        has_ready_pod: the scheduler is there, and only the way to it is lost.
    """

    reason: str
    next_step: str
    body: Json = field(default_factory=dict)
    has_ready_pod: bool = False


@dataclass(frozen=True)
class Outage:
    """An outage of the scheduler; `began` is of the monotonic clock, in seconds."""

    clock: Clock
    began: float

    @classmethod
    def now(cls, clock: Clock) -> Outage:
        """An outage that begins now."""
        return cls(clock, clock.monotonic())

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return self.clock.monotonic() - self.began


_NO_SERVER = Cause("why is not known without an API server", "See the cluster: kubectl describe gdc")
# Dask's Client awaits its cluster, drops what that raises, and asks for the address: that raises it again, there alone.
_raised: ContextVar[KubeClusterError | None] = ContextVar("raised", default=None)


class Reconnector:
    """Reconnects to a scheduler that is away, tries other routes, and gives the cause to whoever waits.

    Args:
        resource: the cluster.
        connection: to its scheduler.
        cluster: whose clients are told; known by its identity alone.
        progress: what shows a wait.
        timing: intervals and deadlines.

    Attributes:
        outage: the present one; None while the scheduler is there.
    """

    def __init__(
        self,
        resource: Resource,
        connection: SchedulerConnection,
        *,
        cluster: object,
        progress: Callable[[], Progress],
        timing: Timing,
    ) -> None:
        self.outage: Outage | None = None
        self._resource, self._connection, self._cluster = resource, connection, cluster
        self._progress, self._timing = progress, timing
        self._cause = _NO_SERVER  # of the outage, as last found out
        self._refused: KubeClusterError | None = None  # what the last who waited in vain were told
        self._following: asyncio.Task[None] | None = None
        self._choosing = asyncio.Lock()
        self._chosen = -math.inf  # when a way was chosen again, by the monotonic clock
        _reconnectors.add(self)

    async def reconnect(self, subscribe: Callable[[], Awaitable[Any]], is_running: Callable[[], bool]) -> Any:
        """Follow the outage that begins now, until there is another connection.

        Args:
            subscribe: asks the scheduler to tell of its workers, and gives the connection over which it does.
            is_running: whether the program still wants one.

        Returns:
            the connection; None where none is wanted any more.
        """
        if is_running():
            self.outage = Outage.now(self._timing.clock)
            with requests_for(Purpose.POLLING):
                self._following = asyncio.create_task(self._follow(self.outage))
        try:
            while is_running():
                try:
                    return await self._connection.call(subscribe())
                except OSError:
                    await self._timing.clock.sleep(self._timing.retry_seconds)
            return None
        finally:  # also where this is cancelled, since the program closes its cluster
            if self._following is not None:
                self._following.cancel()
            self.outage = self._following = self._refused = None

    def raise_refusal(self) -> None:
        """Raise why, to a `Client` that is being made and waited for the scheduler in vain.

        Raises:
            KubeClusterError: it did, just now.
        """
        refused = _raised.get()
        _raised.set(None)
        if refused is not None and refused is self._refused:
            raise refused

    async def find_cause(self) -> Cause:
        """Find the cause for which the scheduler is not reached."""
        resource = self._resource
        if resource.server is None:
            return _NO_SERVER
        cause = await cause_of(resource.server, resource.name, self._connection.trouble, uid=resource.uid)
        resource.update(cause.body or resource.body)
        return cause

    async def add_cause(self, error: BaseException | None) -> None:
        """Let an error that leaves the block say that the scheduler was away: Dask's own do not say why."""
        outage = self.outage
        if error is not None and outage is not None and not isinstance(error, KubeClusterError):
            error.add_note(f"gpudask: {self._error(outage, await self.find_cause())}")

    async def wait_until_reachable(self) -> None:
        """Wait until somebody new would reach the scheduler, almost as long as a `Client` that is being made would.

        Raises:
            KubeClusterError: it stays away, and why.
        """
        clock = self._timing.clock
        outage = self.outage or Outage.now(clock)  # one that was not seen so far
        waiting, limit_seconds = Outage.now(clock), _limit_seconds(self._starting_client())
        with self._progress() as progress:
            while not await self._connection.is_reachable():
                cause = await self.find_cause()
                error = self._error(outage, cause)
                if waiting.seconds > limit_seconds:
                    if (client := self._starting_client()) is not None:
                        await client._close()  # noqa: SLF001 - it does so itself only where a connection fails
                    self._refused = error
                    _raised.set(error)
                    raise error
                progress.show([f"the scheduler is away: {cause.reason}"])
                await self._try_another_route(cause)
                await clock.sleep(self._timing.outage_pause_seconds)
        self._refused = None

    # ------------------------------------------------------------------ following an outage

    async def _follow(self, outage: Outage) -> None:
        """Say why when it lasts longer than a restart, and go on finding out; look for another way meanwhile."""
        await self._timing.clock.sleep(self._timing.outage_warn_seconds)
        self._cause = await self.find_cause()
        logger.warning("gpudask: %s", self._error(outage, self._cause))
        warning = asyncio.create_task(self._warn_clients(outage))
        try:
            while True:
                await self._try_another_route(self._cause)
                timing = self._timing
                await timing.clock.sleep(
                    timing.outage_look_seconds if self._connecting_clients() else timing.outage_idle_seconds
                )
                self._cause = await self.find_cause()
        finally:
            warning.cancel()

    async def _warn_clients(self, outage: Outage) -> None:
        """Say why again when Dask's clients are about to give up, and to each whose own deadline is near.

        What was found out last is said: asking now could take longer than they wait.
        """
        has_warned = False
        while True:
            error = self._error(outage, self._cause)
            if not has_warned and outage.seconds >= _limit_seconds():
                has_warned = True
                logger.warning("gpudask: %s", error)
            for client in self._connecting_clients():
                if outage.seconds >= _limit_seconds(client):
                    _cancel_pending(client, error)
            await self._timing.clock.sleep(self._timing.outage_tick_seconds)

    def _connecting_clients(self) -> list[Any]:
        """The clients of this cluster that look for the scheduler."""
        clients = list(Client._instances)  # noqa: SLF001 - Dask keeps no list of a cluster's clients
        return [client for client in clients if client.cluster is self._cluster and client.status == "connecting"]

    def _error(self, outage: Outage, cause: Cause) -> KubeClusterError:
        give_up = f"Dask's clients close after {give_up_seconds():g} s without it"
        return KubeClusterError(
            f"the scheduler of cluster {self._resource.name!r} is away for {outage.seconds:.0f} s",
            reason=cause.reason,
            next_step=f"{cause.next_step}. {give_up}: once it is back, make a new Client(cluster)",
        )

    def _starting_client(self) -> Any:
        """The `Client` of this cluster that is just being made, where it is to be the default one; else None."""
        with contextlib.suppress(ValueError):  # there is none
            client = default_client()
            if client.cluster is self._cluster and client.scheduler is None:
                return client
        return None

    def forget_clients(self) -> None:
        """Let the cluster's clients be closed, in the child of a fork: to close one waits a minute for no thread."""
        for client in list(Client._instances):  # noqa: SLF001 - see _follow
            if client.cluster is self._cluster:
                client.status = "closed"

    async def _try_another_route(self, cause: Cause) -> None:
        """Choose again where a scheduler is there, and its outside address does not answer: that may be another."""
        async with self._choosing:
            now = self._timing.clock.monotonic()
            is_due = now > self._chosen + self._timing.outage_choose_seconds
            if cause.has_ready_pod and self._connection.is_by_outside_address and is_due:
                self._chosen = now
                await self._connection.reroute()


_reconnectors: weakref.WeakSet[Reconnector] = weakref.WeakSet()


def _after_fork() -> None:
    for reconnector in list(_reconnectors):
        reconnector.forget_clients()


if hasattr(os, "register_at_fork"):  # not under Windows, which has no fork
    os.register_at_fork(after_in_child=_after_fork)


def _limit_seconds(client: Any = None) -> float:
    """Seconds to wait for a scheduler: a little less than `client` of Dask does, or any client by default."""
    seconds = give_up_seconds() if client is None else float(client._timeout)  # noqa: SLF001 - its `timeout=`
    return seconds * 5 / 6


def _cancel_pending(client: Any, error: KubeClusterError) -> None:
    """Cancel, with the cause, what waits in a client that will close: Dask would give no reason.

    One by one: the program may submit meanwhile, in a thread of its own.
    """
    for key in list(client.futures):
        state = client.futures.pop(key, None)
        if state is not None:
            state.cancel(reason="scheduler-away", msg=str(error))


async def cause_of(server: Server, name: str, trouble: str, *, uid: str = "") -> Cause:
    """Find the cause for which the scheduler of cluster `name` is away, within 5 s.

    Args:
        server: where it is.
        name: the cluster's.
        trouble: why it was not reached, as whoever tried says it.
        uid: the cluster's; empty where it is not known.
    """
    try:
        async with asyncio.timeout(server.timing.cause_seconds):
            body = await server.cluster(name)
            pods = await _pods(server, body)
    except TimeoutError:
        reason = f"the API server does not answer: no answer within {server.timing.cause_seconds:g} s"
        return Cause(reason, "Check that `kubectl version` answers")
    except KubeClusterError as error:
        if error.status == NOT_FOUND:
            return await _gone(server, name, uid)
        return Cause(f"the API server does not tell why: {error.reason}", error.next_step)
    if pods is None:
        return Cause(why_no_scheduler(body), where_to_look(body), body)
    staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    if ready := [pod["metadata"]["name"] for pod in staying if is_ready(pod)]:
        reason = f"its pod {ready[0]} is ready, but is not reached" + (f": {trouble}" if trouble else "")
        return Cause(reason, f"See its log: kubectl logs {ready[0]} -n {server.namespace}", body, has_ready_pod=True)
    return Cause("; ".join(why_scheduler_waits(body, staying)), where_to_look(body), body)


async def _gone(server: Server, name: str, uid: str) -> Cause:
    gone, why = f"there is no such cluster any more in namespace {server.namespace!r}", ""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(server.timing.cause_seconds):
            why = await server.why_deleted(name, uid)
    return Cause(f"{gone}: {why}" if why else gone, "Create it again")


async def _pods(server: Server, body: Json) -> list[Json] | None:
    """The scheduler's pods; None where they may not be listed."""
    try:
        return await list_pods(server, body["metadata"]["name"], body["metadata"]["uid"], component="scheduler")
    except KubeClusterError as error:
        if error.status != FORBIDDEN:
            raise
        return None
