"""The connection to a cluster's scheduler: the route to it, forwarded ports, Dask's rpc."""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from distributed.core import rpc
from distributed.security import Security

from gpudask.api.addresses import COMM_PORT
from gpudask.kubecluster.display import Progress
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.forward import route
from gpudask.kubecluster.forward.route import Route
from gpudask.kubecluster.kube.request import NOT_FOUND
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.manifest import JUPYTER
from gpudask.kubecluster.resource import Resource
from gpudask.kubecluster.scheduler.readiness import accepted, scheduler_is_ready
from gpudask.kubecluster.scheduler.versions import check_versions, images_of
from gpudask.kubecluster.stock.options import Options
from gpudask.kubecluster.timing import Deadline, Timing, start_limit

logger = logging.getLogger(__name__)

T = TypeVar("T")
_KEPT_OUT = ". A NetworkPolicy may keep this pod out: name the pod in the cluster's spec.network.allowFrom"


class SchedulerConnection:
    """The connection of this program to the scheduler of one cluster.

    Args:
        resource: the cluster.
        options: how long its scheduler is waited for, what is forwarded, and whether versions are compared.
        security: Dask's TLS settings.
        progress: what shows a wait.
        log: called with why a way that there should be is not taken.
        timing: intervals and deadlines.

    Attributes:
        rpc: Dask's, over the present way; None before there is one.
        dashboard: the dashboard's URL as this machine reaches it; empty where it does not.
        forwards: the ports that are forwarded, by the pod's port.
    """

    def __init__(
        self,
        resource: Resource,
        options: Options,
        *,
        security: Security,
        progress: Callable[[], Progress],
        log: Callable[[str], None],
        timing: Timing,
    ) -> None:
        self.rpc: Any = None
        self.dashboard = ""
        self.forwards: route.Forwards = {}
        self._resource = resource
        self._timeout_seconds = start_limit(
            options.timeout, options.resource_timeout, creates=resource.may_create, timing=timing
        )
        self._security = security
        self._dashboard_port = options.dashboard_port
        self._always_forwards = options.always_forwards
        self._compares_versions = options.compares_versions
        self._is_inside = False
        self._progress = progress
        self._log = log
        self._timing = timing

    # ------------------------------------------------------------------ connect

    async def connect(self, start: Callable[[], Awaitable[None]]) -> None:
        """Find or create the cluster, wait for its scheduler, and set up what leads there.

        Args:
            start: Dask's own start, which makes its first requests by `rpc`.

        Raises:
            KubeClusterError: what did not work.
        """
        way = await self._find_route()
        self._use(way)
        try:
            async with asyncio.timeout(self._timing.handshake_seconds):
                await self._start_comm(start)
        except OSError as error:
            name, namespace = self._resource.name, self._resource.namespace
            raise KubeClusterError(
                f"the scheduler of cluster {name!r} does not answer at {way.address}",
                reason=str(error) or f"no answer within {self._timing.handshake_seconds:g} s",
                next_step=f"See its log: kubectl logs -l gpudask.dev/cluster={name},dask.org/component=scheduler"
                f" -n {namespace}{_KEPT_OUT if self._is_inside else ''}",
            ) from error

    async def _start_comm(self, start: Callable[[], Awaitable[None]]) -> None:
        """Run Dask's start; again where a forwarded connection was cut because a busy scheduler did not answer."""
        while True:
            try:
                await start()
            except OSError:
                if COMM_PORT not in self.forwards:
                    raise
                await self._timing.clock.sleep(self._timing.retry_seconds)
            else:
                return

    async def _find_route(self) -> Route:
        self._is_inside = self._resource.is_inside() and not self._always_forwards
        if not await self._resource.open(is_inside=self._is_inside, log=self._log):
            metadata = {"name": self._resource.name, "namespace": self._resource.namespace}
            return route.inside({"metadata": metadata, "spec": {}})
        server, deadline = self._resource.require_server(), Deadline(self._timeout_seconds, self._timing)
        # The pod may be replaced, or the API server, while the way is made.
        while True:
            await self._wait_until_ready(deadline, needs_pods=not self._is_inside)
            if self._is_inside:
                return route.inside(self._resource.body)
            try:
                return await self._from_outside(server, self.forwards)
            except KubeClusterError as error:
                if deadline.is_over or not (error.may_pass or error.status == NOT_FOUND):
                    raise
                logger.info("the way to the scheduler of cluster %s is made again: %s", self._resource.name, error)
            await route.stop(self.forwards)
            await self._timing.clock.sleep(self._timing.retry_seconds)

    async def _from_outside(self, server: Server, forwards: route.Forwards) -> Route:
        return await route.from_outside(
            server,
            self._resource.body,
            forwards,
            dashboard_port=self._dashboard_port,
            connection_args=self._connection_args,
            log=self._log,
        )

    def _use(self, way: Route) -> None:
        self.dashboard = way.dashboard
        self.rpc = rpc(way.address, connection_args=self._connection_args)

    @property
    def _connection_args(self) -> dict[str, Any]:
        arguments: dict[str, Any] = self._security.get_connection_args("client")
        return arguments

    async def _wait_until_ready(self, deadline: Deadline, *, needs_pods: bool, generation: int = 0) -> None:
        body = await scheduler_is_ready(
            self._resource.require_server(),
            self._resource.body,
            deadline,
            progress=self._progress,
            needs_pods=needs_pods,
            generation=generation,
            is_new=self._resource.is_new,
        )
        if self._resource.is_new:
            body = await accepted(self._resource.require_server(), body)
        self._resource.update(body)

    # ------------------------------------------------------------------ use

    async def resume(self, limit_seconds: float | str | None) -> None:
        """Resume a cluster, and wait until its scheduler is ready; by default as long as at the start.

        Raises:
            KubeClusterError: it is not in time.
        """
        await self._resource.suspend(on=False)
        deadline = Deadline(self._timeout_seconds if limit_seconds is None else limit_seconds, self._timing)
        generation = self._resource.body["metadata"].get("generation", 0)
        await self._wait_until_ready(deadline, needs_pods=bool(self.forwards), generation=generation)

    async def call(self, request: Awaitable[T], at_most_seconds: float = math.inf) -> T:
        """Await a scheduler's answer with a timeout.

        Raises:
            OSError: the scheduler or the way to it is being replaced, or it is busy: ask again.
        """
        limit_seconds = min(self._timing.scheduler_seconds, at_most_seconds)
        try:
            async with asyncio.timeout(limit_seconds):
                return await request
        except TimeoutError as error:
            raise TimeoutError(str(error) or f"no answer within {limit_seconds:g} s") from error

    async def is_reachable(self) -> bool:
        """True if a new connection would reach the scheduler."""
        return await route.answers(self.rpc.address, self._connection_args, self._timing.outage_answer_seconds)

    @property
    def dashboard_link(self) -> str:
        """The dashboard's URL as `distributed.dashboard.link` says, else as this machine reaches it; empty: nowhere."""
        return route.browser_link(self.dashboard)

    @property
    def jupyter_link(self) -> str:
        """Jupyter's URL as this machine reaches it.

        Raises:
            KubeClusterError: the cluster has none.
        """
        scheduler = (self._resource.body.get("spec") or {}).get("scheduler") or {}
        if JUPYTER not in scheduler.get("extraArgs", []):
            raise KubeClusterError(
                f"cluster {self._resource.name!r} has no Jupyter",
                reason="its scheduler was not started with it",
                next_step="Create a cluster with jupyter=True",
            )
        return route.browser_link(self.dashboard).removesuffix("/status") + "/jupyter/lab"

    @property
    def trouble(self) -> str:
        """The reason why forwarded ports do not reach the scheduler; empty where they do, or none is forwarded."""
        forward = self.forwards.get(COMM_PORT)
        return forward.trouble if forward else ""

    @property
    def is_by_outside_address(self) -> bool:
        """True if the scheduler is reached at an outside address, of which there may be another."""
        return not self._is_inside and COMM_PORT not in self.forwards

    async def reroute(self) -> None:
        """Choose another way to a scheduler whose outside address does not answer, where there is one."""
        before, forwards = self.rpc, dict(self.forwards)
        try:
            way = await self._from_outside(self._resource.require_server(), forwards)
        except BaseException as error:
            new = {port: forward for port, forward in forwards.items() if port not in self.forwards}
            await route.stop(new)
            if not isinstance(error, KubeClusterError):
                raise
            logger.info("no other way to the scheduler of cluster %s: %s", self._resource.name, error)
            return
        self.forwards.update(forwards)
        self._use(way)
        if before is not None:
            await before.close_rpc()

    async def compare_versions(self) -> None:
        """Compare versions with those of the scheduler and the workers that run.

        Raises:
            KubeClusterError: nothing would pass.
        """
        if self._compares_versions:
            await check_versions(self.rpc, self._resource.name, self._resource.body, self._timing)

    async def compare_versions_again(self) -> None:
        """Compare versions again with workers that came later, where a pool has an image of its own.

        Raises:
            KubeClusterError: nothing would pass.
        """
        if len(images_of(self._resource.body)) > 1:
            await self.compare_versions()

    async def close(self) -> None:
        """Stop forwarding; `rpc` is Dask's to close."""
        await route.stop(self.forwards)
