"""`KubeCluster`: a Dask cluster manager for a GpuDaskCluster, made by it or by somebody else.

Built on `distributed.deploy.Cluster`, not on dask_kubernetes' class: that one's start reads and creates
kubernetes.dask.org objects. From distributed come the parts that users know: `Client(cluster)`, the widget, `async
with`. Here are the methods that programs call and those that Dask wants; what they do is in the parts that it owns:
the resource, the connection to its scheduler, the reconnector, its workers, and its pools.
"""

# mypy: disallow-untyped-calls=False, disallow-any-generics=False
from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from enum import Enum
from operator import attrgetter
from typing import Any, Self

from distributed.core import Status
from distributed.deploy.cluster import Cluster
from distributed.security import Security
from distributed.utils import Log, Logs

from gpudask.kubecluster import display
from gpudask.kubecluster.connection import SchedulerConnection
from gpudask.kubecluster.display import Progress
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.holds import Hold
from gpudask.kubecluster.manifest import Arguments, Size, read_manifest
from gpudask.kubecluster.outage import Reconnector
from gpudask.kubecluster.pools import one_of, pool_of_arguments, pool_of_group
from gpudask.kubecluster.resource import CreateMode, Resource
from gpudask.kubecluster.timing import Timing, end_task, limit_of, run_or_cancel, start_limit
from gpudask.kubecluster.workers import Workers


def _of_part(path: str, doc: str) -> Any:
    """A property that a part has, such as `_connection.rpc`."""
    part, _, name = path.partition(".")
    return property(attrgetter(path), lambda self, value: setattr(getattr(self, part), name, value), doc=doc)


class KubeCluster(Cluster):
    """A GpuDaskCluster, from outside Kubernetes or inside it: found by its name, or created.

    ```python
    with KubeCluster(n_workers=2, gpus=8) as cluster, Client(cluster) as client:
        cluster.wait_for_workers(2, pool="cpu", timeout=300)
    ```

    From outside, a port is forwarded to the scheduler's pod, and again when that is lost; a Service with an outside
    address that answers is dialled. Inside Kubernetes the Service's name is. A bare `KubeCluster()` creates a cluster
    with a name of its own and one CPU pool, and says what it chose.

    Args:
        name: the resource's name. `{user}` and `{uuid}` in it are filled in. Without it a new name.
        namespace: its namespace; the kubeconfig's or the pod's own where it is left out.
        image: one environment for every pod; Dask's configuration `gpudask.image` where it is left out.
        n_workers: pods of the pool `cpu`, one worker each: a number, or the least and the most to follow demand.
        gpus: pods of the pool `gpu`, one GPU and one worker each: the most, from zero, or the least and the most.
        resources: of each worker pod: `{"cpu": 4, "memory": "16Gi"}`, or with `requests` and `limits` around it.
        env: environment variables of every pod: by name, or as in a pod.
        worker_command: `dask worker` with arguments of your own.
        idle_timeout: seconds, or a duration such as `1h`, without any task after which the operator deletes the
            cluster, also when this program is gone; 0 or nothing: never.
        scheduler_service_type: ClusterIP, NodePort or LoadBalancer.
        protocol: as in the manifest.
        pools: the pools as in a manifest's `spec.pools`, instead of n_workers, gpus, resources and worker_command.
        custom_cluster_spec: the whole manifest, or its spec, as dict, model or path of a YAML file, instead of all
            arguments but name and namespace.
        create_mode: whether a cluster that exists is connected to (CREATE_OR_CONNECT), refused (CREATE_ONLY), or
            wanted (CONNECT_ONLY).
        shutdown_on_close: delete the cluster when this object is closed or the interpreter ends. By default one
            that it created, and not one that it found.
        quiet: print nothing.
        scheduler_forward_port: the local port that leads to the dashboard; any that is free where it is left out.
        timeout: seconds, or a duration such as `10m`, to wait for the scheduler to be ready: by default 600 s where
            it may be created, else 120 s.
        resource_timeout: the stock client's word for `timeout`.
        port_forward_cluster_ip: forward ports also inside Kubernetes, as the stock client does.
        jupyter: start Jupyter beside the scheduler, whose image has to have jupyterlab: `jupyter_link`.
        compare_versions: whether Python and packages of client, scheduler and workers are compared.
        security: TLS settings, for `protocol: tls` or `wss`; Dask's configuration where it is left out.
        kubeconfig: a path, instead of KUBECONFIG.
        context: a context of the kubeconfig.
        asynchronous: whether methods are awaited; then `await KubeCluster(...)` starts it.
        loop: a tornado loop to run on.

    Raises:
        KubeClusterError: what did not work, why, and what to do next.
    """

    # The stock widget's buttons know no pools.
    _supports_scaling = False

    def __init__(
        self,
        name: str | None = None,
        *,
        namespace: str | None = None,
        image: str | None = None,
        n_workers: Size | None = None,
        gpus: Size | None = None,
        resources: Mapping[str, Any] | None = None,
        env: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        worker_command: str | Sequence[str] | None = None,
        idle_timeout: float | str | None = None,
        scheduler_service_type: str | None = None,
        protocol: str | None = None,
        pools: Sequence[Any] | None = None,
        custom_cluster_spec: Any = None,
        create_mode: Enum | str | None = None,
        shutdown_on_close: bool | None = None,
        quiet: bool = False,
        scheduler_forward_port: int | None = None,
        timeout: float | str | None = None,
        resource_timeout: float | str | None = None,
        port_forward_cluster_ip: bool | None = None,
        jupyter: bool = False,
        compare_versions: bool = True,
        security: Security | None = None,
        kubeconfig: str | None = None,
        context: str | None = None,
        asynchronous: bool = False,
        loop: Any = None,
        timing: Timing | None = None,
    ) -> None:
        self._timing = timing = timing or Timing()
        arguments = Arguments(
            image, n_workers, gpus, resources, env, worker_command, idle_timeout, scheduler_service_type, protocol,
            pools, read_manifest(custom_cluster_spec), jupyter or None,
        )  # fmt: skip
        mode = CreateMode.of(create_mode or CreateMode.CREATE_OR_CONNECT)
        self.security = security or Security()
        self._resource = Resource(
            name, arguments, mode, namespace=namespace, kubeconfig=kubeconfig, context=context,
            shutdown_on_close=shutdown_on_close, timing=timing,
        )  # fmt: skip
        self._connection = SchedulerConnection(
            self._resource, security=self.security, dashboard_port=scheduler_forward_port or 0, log=self._log,
            timeout_seconds=start_limit(timeout, resource_timeout, creates=self._resource.may_create, timing=timing),
            always_forwards=bool(port_forward_cluster_ip), compares_versions=compare_versions, progress=self._progress,
            timing=timing,
        )  # fmt: skip
        parts = self._resource, self._connection
        self._reconnector = Reconnector(*parts, cluster=self, progress=self._progress, timing=timing)
        self._workers = Workers(*parts, self._reconnector, progress=self._progress, timing=timing)
        super().__init__(
            asynchronous=asynchronous, loop=loop, quiet=quiet, name=self._resource.name, scheduler_sync_interval=10
        )
        self._start_now()

    @classmethod
    def from_name(cls, name: str, namespace: str | None = None, **options: Any) -> Self:
        """Connect to the existing cluster `name`, also after a kernel restart; `options` are the class's."""
        return cls(name, namespace=namespace, **{"create_mode": CreateMode.CONNECT_ONLY, **options})

    def _progress(self) -> Progress:
        return Progress(f"cluster {self._resource.name}", self._timing, quiet=self.quiet)

    # ------------------------------------------------------------------ start and close

    def _start_now(self) -> None:
        """Start, unless the program awaits it."""
        if self.called_from_running_loop:
            return
        self._loop_runner.start()
        try:
            run_or_cancel(self.sync, self._start)
        except BaseException:
            self._loop_runner.stop()
            raise

    def __await__(self) -> Generator[Any, Any, Self]:
        """Start it; later, wait for a scheduler that is away.

        Raises:
            KubeClusterError: it stays away, and why.
        """

        async def started() -> Self:
            if self.status == Status.running:
                await self._reconnector.wait_until_reachable()
            elif self.status == Status.created:
                await self._start()
            return self

        return started().__await__()

    async def _start(self) -> None:
        try:
            await self._connection.connect(super()._start)
            # The base takes over what the scheduler remembers of a cluster manager that was here before.
            self.name = self._resource.name
            await self._connection.compare_versions()
        except BaseException:
            await self._close()
            raise

    shutdown_on_close = _of_part(
        "_resource.shutdown_on_close", "True if the cluster is deleted at the end; may be set."
    )

    async def _close(self, gone_within_seconds: float | None = None) -> None:
        if self._resource.is_inherited:
            self.status = Status.closed  # the connections are the parent's, and so is the cluster
            return
        self._reconnector.end()
        # The base closes the connection that it knows and waits for this task, which may just be making another.
        await end_task(self._watch_worker_status_task)
        self._watch_worker_status_task = None
        try:
            await super()._close()
            await self._connection.close()
        finally:
            await self._resource.close(gone_within_seconds)

    def close(self, timeout: float | str | None = None) -> Any:
        """Disconnect, and delete the cluster where `shutdown_on_close` says so.

        Args:
            timeout: seconds, or a duration such as `10m`, to wait until a cluster that is deleted, and its pods, are
                gone. Without it that is not waited for; a deletion that fails is tried again when this program ends.

        Raises:
            KubeClusterError: something of it is left then.
        """
        if self._resource.is_inherited or self.status == Status.closed:
            self.status = Status.closed
            return super().close()
        try:
            return self.sync(self._close, limit_of(timeout))
        except RuntimeError as error:
            if isinstance(error, KubeClusterError):
                raise
            return None  # the loop is closed: Python ends
        finally:
            if not self.asynchronous:
                self._loop_runner.stop()

    def sync(self, func: Any, *args: Any, **options: Any) -> Any:
        """As Dask's; refused in a forked child, which has no thread that would do it."""
        self._resource.refuse_inherited()
        return super().sync(func, *args, **options)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is not None and not self._resource.is_inherited:
                self.sync(self._reconnector.add_cause, error)
        finally:
            super().__exit__(kind, error, trace)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self._reconnector.add_cause(error)
        finally:
            await super().__aexit__(kind, error, trace)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, KubeCluster) and self._resource.is_same(other._resource))

    def __hash__(self) -> int:
        return hash(self._resource.name)  # server and namespace are not known before it starts

    # ------------------------------------------------------------------ the scheduler, as Dask's base asks for it

    namespace = _of_part("_resource.namespace", "The cluster's namespace; empty until it is known.")
    scheduler_comm = _of_part("_connection.rpc", "Dask's rpc to the scheduler.")
    scheduler_info = _of_part("_workers.info", "The scheduler's identity, with its workers.")

    @property
    def scheduler_address(self) -> str:
        """The address of the scheduler as this program reaches it.

        Raises:
            KubeClusterError: to a `Client` that is being made and waited for the scheduler in vain.
        """
        self._reconnector.raise_refusal()
        return str(super().scheduler_address)

    @property
    def dashboard_link(self) -> str:
        """The dashboard's URL as this machine reaches it; empty where it does not."""
        return self._connection.dashboard

    async def _watch_worker_status(self, comm: Any) -> None:
        """Follow the scheduler's list of workers, over a new connection when one is lost."""
        while comm is not None:
            await super()._watch_worker_status(comm)
            comm = await self._reconnector.reconnect(self._workers.subscribe, lambda: self.status == Status.running)
            self._watch_worker_status_comm = comm

    def _update_worker_status(self, op: str, msg: Any) -> None:
        super()._update_worker_status(op, msg)
        self._workers.news.set()

    def wait_for_workers(self, n_workers: int, timeout: float | str | None = None, pool: str | None = None) -> Any:
        """Wait until `n_workers` Dask workers run, of `pool` where it is given. It says what it waits for.

        A scheduler or an API server that does not answer for a while does not end the wait.

        Args:
            n_workers: workers, not pods.
            timeout: seconds, or a duration such as `10m`; without it, for ever.
            pool: the pool's name.

        Raises:
            KubeClusterError: they did not come in time; the message has the operator's reason. Or there is no such
                pool or cluster any more; or nothing would pass to the workers: they have another Python, from an
                image of their pool's own.
        """
        return self.sync(self._workers.wait_for, n_workers, timeout, pool)

    # ------------------------------------------------------------------ pools

    def scale(self, n: int | None, pool: str | None = None, *, worker_group: str | None = None) -> Any:
        """Set a pool to `n` pods until `unscale`; `None` gives the size back to its manifest.

        Args:
            n: pods, not workers: a pod with 4 GPUs holds 4 workers.
            pool: the pool's name; may be left out where there is only one.
            worker_group: the stock client's word for `pool`; its `default` is the pool of that name, else the first
                one without GPUs.

        Raises:
            KubeClusterError: no such pool, several pools and none named, or the API server refuses.
        """
        return self.sync(self._resource.scale, n, one_of(pool, worker_group), is_group=worker_group is not None)

    def unscale(self, pool: str | None = None) -> Any:
        """Remove what `scale` or `adapt` set, so that the manifest's replicas or autoscale hold again."""
        return self.sync(self._resource.scale, None, pool)

    def adapt(  # type: ignore[override]  # Dask's takes a class of its own
        self, minimum: int | None = None, maximum: int | None = None, pool: str | None = None
    ) -> Any:
        """Let a pool follow demand between these limits until `unscale`, whatever its manifest says.

        Not Dask's own Adaptive, which is blind to GPUs: the operator does it, and goes on when this program ends.

        Args:
            minimum: pods that stay without demand; the manifest's, or 0, where it is left out.
            maximum: pods at most; the manifest's where it is left out.
            pool: the pool's name; may be left out where there is only one.

        Raises:
            KubeClusterError: as `scale`, or there is no maximum anywhere.
        """
        return self.sync(self._resource.adapt, minimum, maximum, pool)

    def hold(self, pool: str, n: int, *, timeout: float | str | None = 600) -> Hold:
        """A fixed set of workers for a while, for XGBoost, PyTorch or cuML; `async with` in an asynchronous program.

        ```python
        with cluster.hold("gpu", 4) as workers:
            train(client, workers=workers)
        ```

        Sets the pool to `n` pods, waits until exactly their workers run, and gives the size back at the end, also
        after an error. `workers` are their addresses. Of several holds of one pool, the newest counts, until it ends.

        Args:
            pool: the pool's name.
            n: pods.
            timeout: seconds, or a duration such as `10m`, to wait for them; None: for ever.

        Raises:
            KubeClusterError: on entering: they did not come, or others set this pool's size too.
        """
        return Hold(self._resource, self._workers, pool, n, timeout, sync=self.sync, timing=self._timing)

    def add_pool(self, name: str, *, n_workers: Any = None, gpus: Any = None, **fields: Any) -> Any:
        """Add a pool to the running cluster.

        Args:
            name: 1 to 15 lower-case letters and digits, a letter first.
            n_workers: pods of a CPU pool: a number, or the least and the most.
            gpus: pods of one GPU each: the most, or the least and the most.
            **fields: as in a manifest's pool: `resources={"memory": "64Gi"}`, `template={...}`.

        Raises:
            KubeClusterError: there is one of that name, it is not valid, or the API server refuses.
        """
        return self.sync(self._resource.add_pool, pool_of_arguments(name, n_workers, gpus, fields))

    def remove_pool(self, name: str) -> Any:
        """Remove a pool; its pods finish what they run, and hand over their results first.

        Raises:
            KubeClusterError: there is no such pool, it is the last one, or the API server refuses.
        """
        return self.sync(self._resource.remove_pool, name)

    def add_worker_group(  # noqa: PLR0917 - the stock client's order
        self,
        name: str,
        n_workers: int = 3,
        image: str | None = None,
        resources: Mapping[str, Any] | None = None,
        worker_command: str | Sequence[str] | None = None,
        env: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        custom_spec: Any = None,
    ) -> Any:
        """`add_pool` in the stock client's words; `custom_spec` is refused: a pool has a template.

        Raises:
            KubeClusterError: as `add_pool`, or a word cannot be used: the message says what to write.
        """
        pool = pool_of_group(
            name, n_workers=n_workers, image=image, resources=resources, worker_command=worker_command, env=env,
            custom_spec=custom_spec,
        )  # fmt: skip
        return self.sync(self._resource.add_pool, pool)

    def delete_worker_group(self, name: str) -> Any:
        """`remove_pool` in the stock client's words."""
        return self.remove_pool(name)

    def suspend(self) -> Any:
        """Give up every pod once its tasks end, the scheduler last, and keep the resource; `resume` undoes it."""
        return self.sync(self._resource.suspend, on=True)

    def resume(self, timeout: float | str | None = None) -> Any:
        """Undo `suspend`, and wait until the scheduler is ready. Clients of before are to be made anew.

        Args:
            timeout: seconds, or a duration such as `10m`; by default the class's.

        Raises:
            KubeClusterError: it is not ready in time.
        """
        return self.sync(self._connection.resume, timeout)

    # ------------------------------------------------------------------ what people read

    jupyter_link = _of_part(
        "_connection.jupyter_link", "Jupyter's URL as this machine reaches it; an error without one."
    )

    def get_logs(
        self, cluster: bool = True, scheduler: bool = True, workers: Any = True, pool: str = "", tail: int | None = None
    ) -> Any:
        """The logs of the cluster's pods by pod name, as Kubernetes has them: those that crash included.

        Where the log of one pod cannot be read (it went meanwhile, its node is lost) its text says so.

        Args:
            cluster: what this object said.
            scheduler: the scheduler's.
            workers: the workers'.
            pool: only this pool's.
            tail: only that many lines of each from the end.

        Raises:
            KubeClusterError: the API server refuses, and nothing is connected.
        """
        return self.sync(self._get_logs, cluster=cluster, scheduler=scheduler, workers=workers, pool=pool, tail=tail)

    async def _get_logs(
        self, cluster: bool = True, scheduler: bool = True, workers: Any = True, pool: str = "", tail: int | None = None
    ) -> Any:
        is_running = self.status == Status.running
        texts = await self._workers.logs(scheduler and not pool, bool(workers), pool, tail, is_running=is_running)
        if texts is None:  # without rights on pods, what the processes themselves remember
            return await super()._get_logs(cluster=cluster, scheduler=scheduler, workers=workers)
        logs = Logs({name: Log(text) for name, text in texts.items()})
        if cluster and not pool:
            logs["Cluster"] = Log("\n".join(line for _, line in self._cluster_manager_logs))
        return logs

    def __repr__(self) -> str:
        pools = display.as_text(display.pool_rows(self._resource.body, self.scheduler_info["workers"]))
        return f"{type(self).__name__}({self.name}, {self.scheduler_address!r}, {pools or 'not started'})"

    def _scaling_status(self) -> str:
        """HTML rows of pools for the widget: the base class knows none, and calls every cluster manually scaled."""
        return display.as_html(display.pool_rows(self._resource.body, self.scheduler_info["workers"]))

    def _repr_html_(self, cluster_status: Any = None) -> str:
        return str(super()._repr_html_(cluster_status=(cluster_status or "") + self._scaling_status()))
