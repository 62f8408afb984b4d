"""A cluster manager's link to its scheduler: made, and let go. How it is followed is in following.py."""

# mypy: disallow-untyped-calls=False, disallow-any-generics=False
from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from typing import Any, Self

from distributed.core import Status, rpc
from distributed.security import Security

from gpudask.api.stock import COMM_PORT
from gpudask.kubecluster import forwarding, routes
from gpudask.kubecluster.access import Access
from gpudask.kubecluster.agreement import check_versions, images_of
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.following import FollowingCluster
from gpudask.kubecluster.request import NOT_FOUND
from gpudask.kubecluster.routes import Route
from gpudask.kubecluster.server import Server
from gpudask.kubecluster.starting import scheduler_is_ready
from gpudask.kubecluster.timing import Deadline, Timing

logger = logging.getLogger(__name__)

Json = dict[str, Any]
_KEPT_OUT = ". A NetworkPolicy may keep this pod out: name the pod in the cluster's spec.network.allowFrom"


class LinkedCluster(FollowingCluster):
    """A `distributed.deploy.Cluster` that is linked to the scheduler of an existing GpuDaskCluster.

    The arguments are those of `KubeCluster`, which also creates clusters.
    """

    # The stock widget's buttons know no pools.
    _supports_scaling = False

    def __init__(
        self,
        name: str,
        *,
        namespace: str | None,
        timeout: float,
        security: Security | None,
        scheduler_forward_port: int | None,
        port_forward: bool,
        compare_versions: bool,
        kubeconfig: str | None,
        context: str | None,
        asynchronous: bool,
        loop: Any,
        quiet: bool,
        timing: Timing,
    ) -> None:
        super().__init__(
            asynchronous=asynchronous, loop=loop, quiet=quiet, name=name, scheduler_sync_interval=10, timing=timing
        )
        self._resource_name = name
        self.namespace = namespace or ""
        self.security = security or Security()
        self._wanted_namespace = namespace
        self._kubeconfig, self._context = kubeconfig, context
        self._timeout_seconds = timeout
        self._dashboard_port = scheduler_forward_port or 0
        self._always_forwards = port_forward
        self._compares_versions = compare_versions
        self._server: Server | None = None
        self._forwards: forwarding.Forwards = {}
        self._dashboard = ""
        self._is_inside = False
        self._body: Json = {}

    def _start_now(self) -> None:
        """Start, unless the program awaits it."""
        if self.called_from_running_loop:
            return
        self._loop_runner.start()
        try:
            self.sync(self._start)
        except BaseException:
            # After Ctrl-C the start goes on in the loop's thread: end it.
            if self.status != Status.closed:
                self.sync(self._close, callback_timeout=30)
            self._loop_runner.stop()
            raise

    def __await__(self) -> Generator[Any, Any, Self]:
        async def started() -> Self:
            if self.status == Status.created:
                await self._start()
            return self

        return started().__await__()

    @property
    def dashboard_link(self) -> str:
        """The dashboard's URL as this machine reaches it; empty where it does not."""
        return self._dashboard

    def require_server(self) -> Server:
        """The API server.

        Raises:
            KubeClusterError: this object was not started, or works without one.
        """
        if self._server is None:
            raise KubeClusterError(
                f"cluster {self.name!r} is not connected to an API server",
                reason="it was not started, or this pod has no service-account token",
                next_step="Await it first, or give the pod a service account that may get"
                " and patch gpudaskclusters.gpudask.dev",
            )
        return self._server

    # ------------------------------------------------------------------ making the link

    async def _find(self, server: Server) -> Json:
        """The cluster to link to."""
        return await server.cluster(self.name)

    async def _start(self) -> None:
        try:
            route = await self._connect()
            self._take(route)
            try:
                async with asyncio.timeout(self._timing.handshake_seconds):
                    await self._greet()
            except OSError as error:
                raise KubeClusterError(
                    f"the scheduler of cluster {self.name!r} does not answer at {route.address}",
                    reason=str(error) or f"no word within {self._timing.handshake_seconds:g} s",
                    next_step="See its log: kubectl logs -l"
                    f" gpudask.dev/cluster={self.name},dask.org/component=scheduler -n {self.namespace}"
                    f"{_KEPT_OUT if self._is_inside else ''}",
                ) from error
            # The base takes over what the scheduler remembers of a cluster manager that was here before.
            self.name = self._resource_name
            if self._compares_versions:
                await check_versions(self.scheduler_comm, self.name, self._body, self._timing)
        except BaseException:
            await self._close()
            raise

    async def _greet(self) -> None:
        """Open the base's connection; again where a forwarded one was cut because a busy scheduler did not answer."""
        while True:
            try:
                await super()._start()
            except OSError:
                if COMM_PORT not in self._forwards:
                    raise
                await self._timing.clock.sleep(self._timing.retry_seconds)
            else:
                return

    async def _connect(self) -> Route:
        """The way to the scheduler; sets up what leads there."""
        is_inside = Access(self._kubeconfig, self._context).is_inside() and not self._always_forwards
        self._is_inside = is_inside
        try:
            self._server = await Server.connect(
                self._wanted_namespace, self._kubeconfig, self._context, timing=self._timing
            )
            self.namespace = self._server.namespace
            self._body = await self._find(self._server)
        except KubeClusterError as error:
            if not (is_inside and self._wanted_namespace and self._may_be_blind()) or error.status == NOT_FOUND:
                raise
            # A pod without any permission can still work: the Service has a known name.
            logger.info("going to the scheduler's Service without asking the API server: %s", error)
            return routes.inside({"metadata": {"name": self.name, "namespace": self._wanted_namespace}, "spec": {}})
        return await self._way(self._server, is_inside=is_inside)

    async def _way(self, server: Server, *, is_inside: bool) -> Route:
        """The way to the scheduler once it is ready; its pod may be replaced, or the API server, while it is made."""
        deadline = Deadline(self._timeout_seconds, self._timing)
        while True:
            await self._wait_for_scheduler(server, deadline, is_inside=is_inside)
            if is_inside:
                return routes.inside(self._body)
            try:
                return await self._from_outside(server, self._forwards)
            except KubeClusterError as error:
                if deadline.is_over or not (error.may_pass or error.status == NOT_FOUND):
                    raise
                logger.info("the way to the scheduler of cluster %s is made again: %s", self.name, error)
            await forwarding.stop(self._forwards)
            await self._timing.clock.sleep(self._timing.retry_seconds)

    async def _from_outside(self, server: Server, forwards: forwarding.Forwards) -> Route:
        return await forwarding.from_outside(
            server,
            self._body,
            forwards,
            dashboard_port=self._dashboard_port,
            connection_args=self.security.get_connection_args("client"),
            tell=self._log,
        )

    def _take(self, route: Route) -> None:
        self._dashboard = route.dashboard
        self.scheduler_comm = rpc(route.address, connection_args=self.security.get_connection_args("client"))

    def _may_be_blind(self) -> bool:
        """Whether it may do without the API server."""
        return True

    async def _wait_for_scheduler(
        self, server: Server, deadline: Deadline, *, is_inside: bool, generation: int = 0
    ) -> None:
        self._body = await scheduler_is_ready(
            server, self._body, deadline, quiet=self.quiet, needs_pods=not is_inside, generation=generation
        )

    # ------------------------------------------------------------------ using it, letting it go

    async def compare_versions_again(self) -> None:
        """Compare versions with the workers that run by now, where a pool has an image of its own.

        Raises:
            KubeClusterError: nothing would pass.
        """
        if self._compares_versions and len(images_of(self._body)) > 1:
            assert self.scheduler_comm is not None
            await check_versions(self.scheduler_comm, self.name, self._body, self._timing)

    async def _close(self) -> None:
        await super()._close()
        await forwarding.stop(self._forwards)

    def close(self, timeout: float | None = None) -> Any:
        """Disconnect, and delete the cluster where `shutdown_on_close` says so."""
        result = super().close(timeout)
        if not self.asynchronous:
            self._loop_runner.stop()
        return result
