"""The lease of a cluster that a program made: without it the operator deletes it (`idle.shutdownAfterDisconnect`).

What keeps it is in the scheduler: Dask's clients send heartbeats, and each of Dask's cluster managers, so `KubeCluster`
too, writes metadata every few seconds. The scheduler's preload counts both, and asks nothing of the API server. Here
the cluster's spec is kept in step with whether the program keeps the cluster.
"""

from __future__ import annotations

import asyncio
import logging

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.manifest import SHUTDOWN
from gpudask.kubecluster.resource import Resource

logger = logging.getLogger(__name__)


class Lease:
    """The field of one cluster's spec: there as long as the program is to delete the cluster."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._settling = asyncio.Lock()
        self._uid = ""
        self._is_leased: bool | None = None  # whether the spec has what this program put there; None: it put nothing

    async def start(self) -> None:
        """Note what the spec has, of the cluster that is connected, and bring it in step."""
        if self._resource.default_shutdown:
            self._is_leased = SHUTDOWN in (self._resource.body["spec"].get("idle") or {})
            self._uid = self._resource.body["metadata"]["uid"]
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
