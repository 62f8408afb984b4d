"""The lease of a cluster that a program made: without it the operator deletes it (`idle.shutdownAfterDisconnect`).

A Dask client is seen by itself, but a program may hold a cluster without one. So a `KubeCluster` writes a line of
metadata to the scheduler once a minute, over the connection that it has already, which asks nothing of the API server.
A late renewal is as good as any, as long as the cluster is there.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import asyncio
import logging
import os
import socket

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.manifest import SHUTDOWN, user
from gpudask.kubecluster.resource import Resource
from gpudask.kubecluster.scheduler.connection import SchedulerConnection
from gpudask.kubecluster.timing import Timing

logger = logging.getLogger(__name__)

KEY = "gpudask-lease"  # as the scheduler's preload knows it (preload/clients.py)


class Lease:
    """Renews the lease of one cluster, and keeps its spec in step with whether the program keeps the cluster.

    The work in the background is of the process that began it: in a fork of it nothing runs.

    Args:
        resource: the cluster.
        connection: to its scheduler.
        timing: intervals and deadlines.
    """

    def __init__(self, resource: Resource, connection: SchedulerConnection, timing: Timing) -> None:
        self._resource, self._connection, self._timing = resource, connection, timing
        self._process = os.getpid()
        self._renewing: asyncio.Task[None] | None = None
        self._settling = asyncio.Lock()
        self._uid = ""
        self._is_leased: bool | None = None  # whether the spec has what this program put there; None: it put nothing

    def start(self) -> None:
        """Renew from now on: there is a connection."""
        self._process = os.getpid()
        if self._resource.default_shutdown:
            self._is_leased = SHUTDOWN in (self._resource.body["spec"].get("idle") or {})
            self._uid = self._resource.body["metadata"]["uid"]
        self._renewing = asyncio.create_task(self._renew())

    async def stop(self) -> None:
        """Renew no more; a cluster that is to stay is left without a lease."""
        if os.getpid() != self._process:
            return
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
            self._renewing = None
        await self.settle()

    async def settle(self) -> None:
        """Write to the spec what follows from `shutdown_on_close`, where that has changed: what is kept has no lease.

        Only where this program made the cluster, and nobody said otherwise.
        """
        async with self._settling:
            is_wanted, after = self._resource.shutdown_on_close, self._resource.default_shutdown
            if self._is_leased is None or self._is_leased == is_wanted:
                return
            metadata = {"uid": self._uid}  # of no other cluster of this name
            patch = {"metadata": metadata, "spec": {"idle": {SHUTDOWN: after if is_wanted else None}}}
            try:
                self._resource.update(await self._resource.require_server().merge(self._resource.name, patch))
            except KubeClusterError as error:
                end = "may outlive this program" if is_wanted else f"goes {after} after this program"
                logger.warning("gpudask: cluster %s %s: %s", self._resource.name, end, error)
            else:
                self._is_leased = is_wanted

    async def _renew(self) -> None:
        await self.settle()
        timing, failures = self._timing, 0
        while os.getpid() == self._process:
            try:
                await self._connection.call(self._connection.rpc.set_metadata(keys=[KEY], value={"by": _holder()}))
                failures = 0
            except Exception as error:  # noqa: BLE001 - a scheduler may fail with anything, and be better next time
                failures += 1
                logger.debug("the lease of cluster %s was not renewed: %s", self._resource.name, error)
            pause_seconds = timing.retry_seconds * 2.0 ** min(failures, 10) if failures else timing.lease_renew_seconds
            await timing.clock.sleep(min(pause_seconds, timing.lease_renew_seconds))


def _holder() -> str:
    return f"{user()}@{socket.gethostname()}"
