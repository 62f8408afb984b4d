"""`KubeCluster`: a Dask cluster manager for a GpuDaskCluster.

Built on `distributed.deploy.Cluster`, not on dask_kubernetes' class: that one's start reads and creates
kubernetes.dask.org objects, prints while it does, and deletes what it made when the interpreter ends. From
distributed come the parts that users know: `Client(cluster)`, the repr, `get_logs`, `async with`.
"""

# mypy: disallow-untyped-calls=False, disallow-any-generics=False
from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import TYPE_CHECKING, Any, NoReturn, Self

from distributed.core import Status, rpc
from distributed.deploy.cluster import Cluster
from distributed.objects import SchedulerInfo
from distributed.security import Security

from gpudask.kubecluster import overrides
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.forward import PortForward
from gpudask.kubecluster.placement import pool_of
from gpudask.kubecluster.reasons import why_not_ready, why_pool_waits
from gpudask.kubecluster.server import Server
from gpudask.kubecluster.sizes import set_size

if TYPE_CHECKING:
    from collections.abc import Generator

logger = logging.getLogger(__name__)

Json = dict[str, Any]
_COMM_PORT, _DASHBOARD_PORT = 8786, 8787
_POLL_SECONDS = 0.25
_RETRY_SECONDS = 1.0


class KubeCluster(Cluster):
    """A running GpuDaskCluster, from outside Kubernetes or inside it.

    ```python
    with KubeCluster.from_name("demo") as cluster, Client(cluster) as client:
        cluster.scale(2, pool="gpu")
    ```

    From outside, a port is forwarded to the scheduler's pod, and again when that is lost. Inside
    Kubernetes the scheduler's Service is dialled. Closing it disconnects and leaves the cluster as it is.

    Args:
        name: the resource's name.
        namespace: its namespace; the kubeconfig's or the pod's own where it is left out.
        timeout: seconds to wait for the scheduler to be ready.
        security: TLS settings, for `protocol: tls` or `wss`; Dask's configuration where it is left out.
        asynchronous: whether methods are awaited; then `await KubeCluster(...)` starts it.
        loop: a tornado loop to run on.
        quiet: keep log lines from standard output.

    Raises:
        KubeClusterError: no such cluster, no permission, or no scheduler in time.
    """

    # The stock widget's buttons know no pools.
    _supports_scaling = False

    def __init__(
        self,
        name: str,
        *,
        namespace: str | None = None,
        timeout: float = 120,
        security: Security | None = None,
        asynchronous: bool = False,
        loop: Any = None,
        quiet: bool = True,
    ) -> None:
        super().__init__(asynchronous=asynchronous, loop=loop, quiet=quiet, name=name, scheduler_sync_interval=10)
        self._resource_name = name
        self.namespace = namespace or ""
        self.security = security or Security()
        self._wanted_namespace = namespace
        self._timeout_seconds = timeout
        self._server: Server | None = None
        self._forwards: dict[int, PortForward] = {}
        if not self.called_from_running_loop:
            self._loop_runner.start()
            try:
                self.sync(self._start)
            except BaseException:
                self._loop_runner.stop()
                raise

    @classmethod
    def from_name(cls, name: str, namespace: str | None = None, **options: Any) -> Self:
        """Connect to the existing cluster `name`; `options` are the class's."""
        return cls(name, namespace=namespace, **options)

    def __await__(self) -> Generator[Any, Any, Self]:
        async def started() -> Self:
            if self.status == Status.created:
                await self._start()
            return self

        return started().__await__()

    # ------------------------------------------------------------------ connecting

    async def _start(self) -> None:
        try:
            address = await self._connect()
            self.scheduler_comm = rpc(address, connection_args=self.security.get_connection_args("client"))
            try:
                await super()._start()
            except OSError as error:
                raise KubeClusterError(
                    f"the scheduler of cluster {self.name!r} does not answer at {address}",
                    reason=str(error),
                    next_step="See its log: kubectl logs -l"
                    f" gpudask.dev/cluster={self.name},dask.org/component=scheduler -n {self.namespace}",
                ) from error
            # The base takes over what the scheduler remembers of a cluster manager that was here before.
            self.name = self._resource_name
        except BaseException:
            await self._close()
            raise

    async def _connect(self) -> str:
        """The address to dial; sets up what leads there."""
        inside = "KUBERNETES_SERVICE_HOST" in os.environ
        try:
            self._server = await Server.connect(self._wanted_namespace)
            self.namespace = self._server.namespace
            body = await self._server.cluster(self.name)
        except KubeClusterError as error:
            if not (inside and self._wanted_namespace) or error.status == 404:  # noqa: PLR2004
                raise
            # A pod without any permission can still work: the Service has a known name.
            logger.info("going to the scheduler's Service without asking the API server: %s", error)
            return f"tcp://{self.name}-scheduler.{self._wanted_namespace}.svc:{_COMM_PORT}"
        body = await self._wait_for_scheduler(body, self._server, inside=inside)
        protocol = body["spec"].get("protocol", "tcp")
        if inside:
            known = body.get("status", {}).get("scheduler", {}).get("address", "")
            return known or f"{protocol}://{self.name}-scheduler.{self.namespace}.svc:{_COMM_PORT}"
        if protocol == "ucxx":
            raise KubeClusterError(
                f"cluster {self.name!r} speaks ucxx",
                reason="that protocol cannot go through a forwarded port",
                next_step="Run the program inside the cluster, or set spec.protocol: tcp",
            )
        for port in (_COMM_PORT, _DASHBOARD_PORT):
            await self._forward(self._server, port)
        return f"{protocol}://127.0.0.1:{self._forwards[_COMM_PORT].local_port}"

    async def _forward(self, server: Server, port: int) -> None:
        async def find_pod() -> str:
            return await server.scheduler_pod(self.name)

        self._forwards[port] = PortForward(server, find_pod, port)
        await self._forwards[port].start()

    async def _wait_for_scheduler(self, body: Json, server: Server, *, inside: bool) -> Json:
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            # The pod's own readiness, not the status: it says so some hundred milliseconds earlier.
            # Inside, permission to list pods is not needed.
            ready = body.get("status", {}).get("scheduler", {}).get("ready", False)
            if ready or (not inside and await server.scheduler_pod(self.name)):
                return body
            if time.monotonic() > deadline:
                raise self._not_ready(body)
            await asyncio.sleep(_POLL_SECONDS)
            body = await server.cluster(self.name)

    def _not_ready(self, body: Json) -> KubeClusterError:
        return KubeClusterError(
            f"the scheduler of cluster {self.name!r} was not ready within {self._timeout_seconds:g} s",
            reason=why_not_ready(body.get("status", {})),
            next_step=f"See kubectl describe gdc {self.name} -n {self.namespace}, or wait longer: timeout=600",
        )

    async def _watch_worker_status(self, comm: Any) -> None:
        """Follow the scheduler's list of workers, over a new connection when one is lost."""
        while True:
            await super()._watch_worker_status(comm)
            while True:
                if self.status != Status.running:
                    return
                try:
                    comm = await self._subscribe()
                    break
                except OSError:
                    await asyncio.sleep(_RETRY_SECONDS)

    async def _subscribe(self) -> Any:
        assert self.scheduler_comm is not None
        comm = await self.scheduler_comm.live_comm()
        await comm.write({"op": "subscribe_worker_status"})
        self.scheduler_info = SchedulerInfo(await comm.read())
        self._watch_worker_status_comm = comm
        return comm

    async def _close(self) -> None:
        await super()._close()
        for forward in self._forwards.values():
            await forward.stop()
        self._forwards.clear()

    def close(self, timeout: float | None = None) -> Any:
        """Disconnect. The cluster and its sizes stay as they are."""
        result = super().close(timeout)
        if not self.asynchronous:
            self._loop_runner.stop()
        return result

    @property
    def dashboard_link(self) -> str:
        """The dashboard's URL as this machine reaches it."""
        forward = self._forwards.get(_DASHBOARD_PORT)
        if forward is not None:
            return f"http://127.0.0.1:{forward.local_port}/status"
        return f"http://{self.name}-scheduler.{self.namespace}.svc:{_DASHBOARD_PORT}/status"

    # ------------------------------------------------------------------ sizes

    def scale(self, n: int | None, pool: str | None = None) -> Any:
        """Set a pool to `n` pods until `unscale`; `None` gives the size back to its manifest.

        Args:
            n: pods, not workers: a pod with 4 GPUs holds 4 workers.
            pool: the pool's name; may be left out where there is only one.

        Raises:
            KubeClusterError: no such pool, several pools and none named, or the API server refuses.
        """
        return self.sync(self._scale, n, pool)

    def unscale(self, pool: str | None = None) -> Any:
        """Remove the size that `scale` set, so that the manifest's replicas or autoscale hold again."""
        return self.sync(self._scale, None, pool)

    async def _scale(self, n: int | None, pool: str | None) -> None:
        await set_size(self._require_server(), self.name, n, pool)

    def adapt(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Pools follow demand by `spec.pools[].autoscale`; Dask's own Adaptive is blind to GPUs.

        Raises:
            KubeClusterError: always.
        """
        raise KubeClusterError(
            "adapt() is not what sizes these pools",
            reason="the operator does, per pool and per resource",
            next_step="Write autoscale: {min: 0, max: 8} into the pool, and unscale(pool) after a scale()",
        )

    def wait_for_workers(self, n_workers: int, timeout: float | None = None, pool: str | None = None) -> Any:
        """Wait until `n_workers` Dask workers run, of `pool` where it is given.

        Args:
            n_workers: workers, not pods.
            timeout: seconds; without it, for ever.
            pool: the pool's name.

        Raises:
            KubeClusterError: they did not come in time; the message has the operator's reason.
        """
        return self.sync(self._wait_for_pool, n_workers, timeout, pool)

    async def _wait_for_pool(self, n_workers: int, limit_seconds: float | None, pool: str | None) -> None:
        if pool is not None:
            overrides.choose_pool(await self._require_server().cluster(self.name), pool)
        started = time.monotonic()
        while (running := await self._running(pool)) < n_workers:
            if limit_seconds is not None and time.monotonic() - started > limit_seconds:
                whose = f" of pool {pool!r}" if pool else ""
                raise await self._too_late(
                    f"{running} of {n_workers} workers{whose} came within {limit_seconds:g} s", pool
                )
            await asyncio.sleep(_POLL_SECONDS)

    async def _running(self, pool: str | None) -> int:
        assert self.scheduler_comm is not None
        try:
            self.scheduler_info = SchedulerInfo(await self.scheduler_comm.identity())
        except OSError:  # the scheduler or the connection is being replaced: none is known to run
            return 0
        return sum(
            worker["status"] == Status.running.name and (pool is None or pool_of(worker["name"], self.name) == pool)
            for worker in self.scheduler_info["workers"].values()
        )

    async def _too_late(self, what: str, pool: str | None) -> KubeClusterError:
        status = (await self._require_server().cluster(self.name)).get("status", {})
        return KubeClusterError(
            what,
            reason=why_pool_waits(status, pool) or why_not_ready(status),
            next_step=f"See kubectl describe gdc {self.name} -n {self.namespace}",
        )

    def _require_server(self) -> Server:
        if self._server is None:
            raise KubeClusterError(
                f"cluster {self.name!r} is not connected to an API server",
                reason="it was not started, or this pod has no service-account token",
                next_step="Await it first, or give the pod a service account that may get"
                " and patch gpudaskclusters.gpudask.dev",
            )
        return self._server
