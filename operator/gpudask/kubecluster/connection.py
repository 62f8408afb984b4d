"""The connection to a cluster's scheduler: the wait until it is ready, the route to it, forwarded ports, Dask's rpc.

Once its pod has started, the scheduler is asked what the kubelet's probe asks, through a port forwarded to it. A pod is
ready only when the kubelet has looked again and has said so, up to some seconds after the scheduler listens. Workers
do not wait for that, and neither does a program.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeVar

from distributed.core import rpc
from distributed.security import Security

from gpudask.api import Json
from gpudask.api.addresses import COMM_PORT, DASHBOARD_PORT
from gpudask.kubecluster.display import Progress
from gpudask.kubecluster.errors import (
    OPERATOR_STEP,
    OUTDATED,
    KubeClusterError,
    KubeClusterTimeoutError,
    waits_for,
    where_to_look,
    why_no_scheduler,
    why_not_ready,
)
from gpudask.kubecluster.forward import route
from gpudask.kubecluster.forward.port_forward import PodPort, open_port
from gpudask.kubecluster.forward.route import Route
from gpudask.kubecluster.kube.pods import has_started, is_ready, list_pods
from gpudask.kubecluster.kube.request import ENVIRONMENT_STEP, FORBIDDEN, NOT_FOUND
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.manifest import JUPYTER
from gpudask.kubecluster.resource import Resource
from gpudask.kubecluster.stock.options import Options
from gpudask.kubecluster.timing import Deadline, Timing, start_limit
from gpudask.kubecluster.versions import check_versions, images_of

logger = logging.getLogger(__name__)

T = TypeVar("T")
_KEPT_OUT = ". A NetworkPolicy may keep this pod out: name the pod in the cluster's spec.network.allowFrom"
_HEALTH = b"GET /health HTTP/1.0\r\n\r\n"
_PAUSE_SHARE = 0.1  # of the time for which it was asked


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
        )
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


class _State(Enum):
    NOTHING = auto()
    STARTED = auto()
    READY = auto()


@dataclass(frozen=True)
class _Readiness:
    """The state of the scheduler's pod, and a line for each reason why it is not ready."""

    state: _State
    lines: list[str]
    pod: str = ""  # that has started


async def scheduler_is_ready(
    server: Server,
    body: Json,
    deadline: Deadline,
    *,
    progress: Callable[[], Progress],
    needs_pods: bool,
    generation: int = 0,
) -> Json:
    """Wait until the scheduler of a cluster answers; the cluster as it is then.

    Its pod is looked at, and the cluster's status only where pods may not be listed: an operator that is behind, or
    away, leaves a status that speaks of a scheduler which is gone.

    Args:
        server: where.
        body: the cluster as last read.
        deadline: how long. An API server that does not answer meanwhile is asked again.
        progress: what shows that it waits.
        needs_pods: whether permission to list pods and to forward their ports is needed later anyway: without the
            first, that is an error now, and with the second the scheduler is asked before its pod is ready.
        generation: a status of an earlier one is not believed: it may speak of a scheduler that is on its way out.

    Raises:
        KubeClusterError: not in time, or the cluster is suspended or deleted; or the server refuses.
    """
    name = body["metadata"]["name"]
    timing, started = server.timing, None
    with progress() as shown:
        while True:
            if body["spec"].get("suspend"):
                raise _suspended(body)
            readiness = await deadline.attempt(_read_readiness(server, body, needs_pods, generation))
            if readiness is not None and readiness.state is _State.READY:
                return body
            shown.show([deadline.trouble] if readiness is None else readiness.lines)
            if deadline.is_over:
                raise _not_ready(body, deadline)
            if readiness is not None and readiness.state is _State.STARTED:
                started = started or timing.clock.monotonic()
                pause_seconds = _pause(timing.clock.monotonic() - started, timing)
                if await _is_up_soon(server, readiness.pod, pause_seconds=pause_seconds):
                    return body
            else:
                started = None
            await timing.clock.sleep(timing.readiness_poll_seconds)
            body = await deadline.attempt(server.cluster(name)) or body


def _pause(asked_for_seconds: float, timing: Timing) -> float:
    if asked_for_seconds < timing.health_first_seconds:
        return timing.health_seldom_seconds
    return min(timing.health_most_seconds, max(timing.health_least_seconds, asked_for_seconds * _PAUSE_SHARE))


async def _is_up_soon(server: Server, pod: str, *, pause_seconds: float) -> bool:
    """True if the scheduler in `pod` answers within about a second, asked again and again with pauses.

    Returns at once, with False, where no port may be forwarded.
    """
    clock = server.timing.clock
    deadline = clock.monotonic() + server.timing.health_seconds
    try:
        while not await _is_up(server, pod):
            if clock.monotonic() + pause_seconds > deadline:
                return False
            await clock.sleep(pause_seconds)
    except KubeClusterError:
        return False
    return True


async def _is_up(server: Server, pod: str) -> bool:
    try:
        async with asyncio.timeout(server.timing.health_seconds), open_port(server, pod, DASHBOARD_PORT) as opened:
            return await _is_answered(opened)
    except OSError:  # a TimeoutError is one
        return False


async def _is_answered(opened: PodPort) -> bool:
    try:
        await opened.send(_HEALTH)
    except ConnectionError:
        return False
    return (await opened.receive()).startswith(b"HTTP/")  # nothing, where nothing listens yet


async def _read_readiness(server: Server, body: Json, needs_pods: bool, generation: int) -> _Readiness:
    try:
        # The pod's own readiness: it is known some hundred milliseconds before the status says so.
        pods = await list_pods(server, body["metadata"]["name"], component="scheduler")
    except KubeClusterError as error:
        if error.status != FORBIDDEN:
            raise
        if _status_is_ready(body, generation):
            return _Readiness(_State.READY, [])
        if needs_pods:
            raise
        return _Readiness(_State.NOTHING, [f"scheduler: {why_not_ready(body)}"])
    if any(is_ready(pod) for pod in pods):
        return _Readiness(_State.READY, [])
    lines = waits_for(body, pods)
    youngest = max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)
    if youngest is None or not (needs_pods and has_started(youngest)):
        return _Readiness(_State.NOTHING, lines)
    return _Readiness(_State.STARTED, lines, youngest["metadata"]["name"])


def _status_is_ready(body: Json, generation: int) -> bool:
    status = body.get("status") or {}
    is_of_now = status.get("observedGeneration", 0) >= generation
    return is_of_now and bool(status.get("scheduler", {}).get("ready", False))


def _not_ready(body: Json, deadline: Deadline) -> KubeClusterError:
    reason = deadline.trouble or why_no_scheduler(body)
    step = OPERATOR_STEP if reason == OUTDATED else where_to_look(body)
    return KubeClusterTimeoutError(
        f"the scheduler of cluster {body['metadata']['name']!r} was not ready within {deadline.limit_seconds:g} s",
        reason=reason,
        next_step=ENVIRONMENT_STEP if deadline.trouble else f"{step}, or wait longer: timeout=600",
    )


def _suspended(body: Json) -> KubeClusterError:
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    return KubeClusterError(
        f"cluster {name!r} is suspended",
        reason="it has no scheduler while it is",
        next_step=f"Resume it: gpudask resume {name} -n {namespace}",
    )
