"""`KubeCluster`: a Dask cluster manager for a GpuDaskCluster, made by it or by somebody else.

Built on `distributed.deploy.Cluster`, which brings `Client(cluster)`, the widget and `async with`: dask_kubernetes'
class reads and creates kubernetes.dask.org objects. What the methods here do is in the parts that the class owns.
"""

# mypy: disallow-untyped-calls=False, disallow-any-generics=False
from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

from dask.typing import NoDefault, no_default
from distributed.core import Status
from distributed.deploy.cluster import Cluster
from distributed.security import Security
from distributed.utils import Log, Logs

from gpudask.kubecluster import display
from gpudask.kubecluster.display import Progress
from gpudask.kubecluster.manifest import Size
from gpudask.kubecluster.pools import one_of, pool_of_arguments, pool_of_group
from gpudask.kubecluster.stock.attributes import Limits, PartAttribute, explain_adaptive
from gpudask.kubecluster.timing import Timing, end_task, limit_of, run_or_cancel

if TYPE_CHECKING:
    from gpudask.kubecluster.holds import Hold


class KubeCluster(Cluster):
    """A GpuDaskCluster, from outside Kubernetes or inside it: found by its name, or created.

    ```python
    with KubeCluster(n_workers=2, gpus=8) as cluster, Client(cluster) as client:
        cluster.wait_for_workers(2, pool="cpu", timeout=300)
    ```

    A bare `KubeCluster()` creates a cluster with a name of its own and one CPU pool, and says what it chose. What is
    left out is as Dask's configuration says: `gpudask.image`, and `kubernetes.*` as dask-kubernetes reads it.

    Args:
        name: the resource's; `{user}`, `{uuid}` and variables of the environment in it are filled in. Else a new one.
        namespace: its namespace; the kubeconfig's or the pod's own where it is left out.
        image: one environment for every pod; where nothing names one, the operator's default.
        n_workers: pods of the pool `cpu`, one worker each: a number, or the least and the most to follow demand.
        gpus: pods of the pool `gpu`, one GPU and one worker each: the most, from zero, or the least and the most.
        resources: of each worker pod: `{"cpu": 4, "memory": "16Gi"}`, or with `requests` and `limits` around it.
            With GPUs among them, the workers of `n_workers` are the pool `gpu`.
        env: environment variables of every pod: by name, or as in a pod.
        worker_command: `dask worker` or `dask cuda worker`, with arguments.
        idle_timeout: seconds, or such as `1h`, without any task after which the operator deletes it; 0: never.
        scheduler_service_type: ClusterIP, NodePort or LoadBalancer.
        protocol: as in the manifest.
        pools: the pools as in a manifest's `spec.pools`, instead of n_workers, gpus, resources and worker_command.
        custom_cluster_spec: the whole manifest, or its spec, as dict, model or path of a YAML file, instead of all
            arguments but name and namespace. A DaskCluster of the stock operator is converted.
        create_mode: CREATE_OR_CONNECT; CREATE_ONLY refuses a cluster that exists, CONNECT_ONLY wants one.
        shutdown_on_close: delete it when this object is closed or the interpreter ends; by default what was created.
        shutdown_after_disconnect: seconds, or a duration, without any program connected after which the operator
            deletes a cluster that this one created; None: never. By default 10m, if it is to be deleted on close.
        quiet: print nothing.
        scheduler_forward_port: the local port that leads to the dashboard; any that is free where it is left out.
        timeout, resource_timeout: seconds, or such as `10m`, to wait for the scheduler; else 600 to create, or 120.
        port_forward_cluster_ip: forward ports also inside Kubernetes.
        jupyter: start Jupyter beside the scheduler, whose image has to have jupyterlab: `jupyter_link`.
        compare_versions: whether Python and packages of client, scheduler and workers are compared.
        security: TLS settings, for `protocol: tls` or `wss`; Dask's configuration where it is left out.
        kubeconfig, context: a path instead of KUBECONFIG, and a context in it.
        asynchronous: whether methods are awaited; then `await KubeCluster(...)` starts it.
        loop, scheduler_sync_interval, timing: as Dask's base class has them, and what tests change.
        **others: arguments of `dask_cuda.LocalCUDACluster`, for the GPU pool: docs/from-dask-kubernetes.md.

    Raises:
        KubeClusterError: what did not work, why, and what to do next; also a ValueError, TypeError or TimeoutError.
    """

    # The stock widget's buttons know no pools.
    _supports_scaling = False

    # What Dask's base asks for.
    namespace = PartAttribute("_resource", "the cluster's namespace; empty until it is known")
    scheduler_comm = PartAttribute("_connection", "Dask's rpc to the scheduler", "rpc")
    scheduler_info = PartAttribute("_workers", "the scheduler's identity, with its workers", "info")
    dashboard_link = PartAttribute("_connection", "the dashboard's URL, as `distributed.dashboard.link` says; or empty")
    jupyter_link = PartAttribute("_connection", "Jupyter's URL as this machine reaches it; an error without one")
    run_on_gpu = PartAttribute("_client_part", "call a function on a worker of a GPU pool, next to the data")
    on_gpu = PartAttribute("_client_part", "the decorator of functions that are to run so")
    # What programs for the stock client read.
    image = PartAttribute("stock", "the image of its pods")
    n_workers = PartAttribute("stock", "the pods of its default pool")
    env = PartAttribute("stock", "the variables of its pods")
    resources = PartAttribute("stock", "of each pod of its default pool")
    worker_command = PartAttribute("stock", "what starts a worker of its default pool")
    jupyter = PartAttribute("stock", "whether Jupyter runs beside its scheduler")
    idle_timeout = PartAttribute("stock", "seconds without a task after which it is deleted; 0: never")
    create_mode = PartAttribute("stock", "whether it was to be created or found")
    scheduler_service_type = PartAttribute("stock", "the kind of its scheduler's Service")
    scheduler_forward_port = PartAttribute("stock", "the port of this machine that was asked for, for the dashboard")
    port_forward_cluster_ip = PartAttribute("stock", "whether ports are forwarded inside Kubernetes, too")
    forwarded_dashboard_port = PartAttribute("stock", "the port in the dashboard's URL")
    plan = PartAttribute("stock", "a name for each worker pod that there should be")
    requested = PartAttribute("stock", "a name for each worker pod that there is")

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
        shutdown_after_disconnect: float | str | NoDefault | None = no_default,
        quiet: bool = False,
        scheduler_forward_port: int | None = None,
        timeout: float | str | None = None,
        resource_timeout: float | str | None = None,
        port_forward_cluster_ip: bool | None = None,
        jupyter: bool | None = None,
        compare_versions: bool = True,
        security: Security | None = None,
        kubeconfig: str | None = None,
        context: str | None = None,
        asynchronous: bool = False,
        loop: Any = None,
        scheduler_sync_interval: float | str = 10,
        timing: Timing | None = None,
        **others: Any,
    ) -> None:
        given = dict(locals())  # each argument by its name
        from gpudask.kubecluster.parts import Parts  # noqa: PLC0415 - they take long to load

        self._timing = timing = timing or Timing()
        self.security = security or Security()
        parts = Parts(
            self, given, others, security=self.security, timing=timing, progress=self._progress, log=self._log
        )
        self._resource, self._connection, self._workers = parts.resource, parts.connection, parts.workers
        self._lease, self._reconnector, self._conditions = parts.lease, parts.reconnector, parts.conditions
        self.stock, self._client_part = parts.stock, parts.client_part
        super().__init__(asynchronous, loop, quiet, self._resource.name, scheduler_sync_interval)
        self._start_now()

    @classmethod
    def from_name(cls, name: str, namespace: str | None = None, **options: Any) -> Self:
        """Connect to the existing cluster `name`, also after a kernel restart; `options` are the class's."""
        return cls(name, namespace=namespace, **{"create_mode": "CONNECT_ONLY", **options})

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
            await self._lease.start()
            self._conditions.start()
        except BaseException:
            await self._close()
            raise

    @property
    def shutdown_on_close(self) -> bool:
        """True if the cluster is deleted when this object is closed or the interpreter ends. It may be set later."""
        return self._resource.shutdown_on_close

    @shutdown_on_close.setter
    def shutdown_on_close(self, value: bool) -> None:
        self._resource.shutdown_on_close = value
        if self.status == Status.running:
            (self._loop_runner.loop.add_callback if self.asynchronous else self.sync)(self._lease.settle)

    async def _close(self, gone_within_seconds: float | None = None) -> None:
        if self._resource.is_inherited:
            self.status = Status.closed  # the connections are the parent's, and so is the cluster
            return
        # The base closes the connection that it knows and waits for this task, which may just be making another.
        await end_task(self._watch_worker_status_task)
        self._watch_worker_status_task = None
        await self._conditions.end()
        await self._lease.settle()
        try:
            await super()._close()
            await self._connection.close()
        finally:
            await self._resource.close(gone_within_seconds)

    def close(self, timeout: float | str | None = None) -> Any:
        """Disconnect, and delete the cluster where `shutdown_on_close` says so.

        Args:
            timeout: seconds, or such as `10m`, to wait until what is deleted is gone, pods too; None: no wait.

        Raises:
            KubeClusterError: something of it is left then (a TimeoutError).
        """
        if self._resource.is_inherited or self.status == Status.closed:
            self.status = Status.closed
            return super().close()
        try:
            return self.sync(self._close, limit_of(timeout))
        except RuntimeError:
            if not self._has_no_loop:
                raise
            return None  # Python ends, and what is to be deleted is deleted then
        finally:
            if not self.asynchronous:
                self._loop_runner.stop()

    @property
    def _has_no_loop(self) -> bool:
        """True if its event loop has ended: it was closed, or Python ends."""
        loop: Any = self.loop  # the runner gives away its own only while it runs
        return loop is not None and bool(loop.asyncio_loop.is_closed())

    def sync(self, func: Any, *args: Any, **options: Any) -> Any:
        """As Dask's; refused in a forked child, which has no thread that would do it."""
        self._resource.refuse_inherited()
        return super().sync(func, *args, **options)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self._conditions.add_to(error)
            if error is not None and not self._resource.is_inherited and not self._has_no_loop:
                self.sync(self._reconnector.add_cause, error)
        finally:
            super().__exit__(kind, error, trace)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self._conditions.add_to(error)
            if error is not None:
                await self._reconnector.add_cause(error)
        finally:
            await super().__aexit__(kind, error, trace)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, KubeCluster) and self._resource.is_same(other._resource))

    def __hash__(self) -> int:
        return hash(self._resource.name)  # server and namespace are not known before it starts

    # ------------------------------------------------------------------ the scheduler, as Dask's base asks for it

    @property
    def scheduler_address(self) -> str:
        """The address of the scheduler as this program reaches it.

        Raises:
            KubeClusterError: to a `Client` that is being made and waited for the scheduler in vain.
        """
        self._reconnector.raise_refusal()
        return str(super().scheduler_address)

    async def _watch_worker_status(self, comm: Any) -> None:
        """Follow the scheduler's list of workers, over a new connection when one is lost."""
        while comm is not None:
            await super()._watch_worker_status(comm)
            comm = await self._reconnector.reconnect(self._workers.subscribe, lambda: self.status == Status.running)
            self._watch_worker_status_comm = comm

    def _update_worker_status(self, op: str, msg: Any) -> None:
        self._workers.update(op, msg)

    def wait_for_workers(self, n_workers: int, timeout: float | str | None = None, pool: str | None = None) -> Any:
        """Wait until `n_workers` Dask workers run, of `pool` where it is given. It says what it waits for.

        A scheduler or an API server that does not answer for a while does not end the wait.

        Args:
            n_workers: workers, not pods.
            timeout: seconds, or a duration such as `10m`; without it, for ever.
            pool: the pool's name.

        Raises:
            KubeClusterError: they did not come in time (a TimeoutError), and the operator's reason. Or there is no such
                pool or cluster any more; or nothing would pass to workers with another Python.
        """
        return self.sync(self._workers.wait_for, n_workers, timeout, pool)

    # ------------------------------------------------------------------ pools

    def scale(self, n: int | None, pool: str | None = None, *, worker_group: str | None = None) -> Any:
        """Set a pool to `n` pods until `unscale`; `None` gives the size back to its manifest.

        Args:
            n: pods, not workers: a pod with 4 GPUs holds 4 workers.
            pool: its name; without it or as `default`: that one, else the first without GPUs, else the first.
            worker_group: the stock client's word for `pool`.

        Raises:
            KubeClusterError: no such pool, or the API server refuses.
        """
        return self.sync(self._resource.scale, n, one_of(pool, worker_group))

    def unscale(self, pool: str | None = None) -> Any:
        """Remove what `scale` or `adapt` set, so that the manifest's replicas or autoscale hold again."""
        return self.sync(self._resource.scale, None, pool)

    def adapt(  # type: ignore[override]  # Dask's takes a class of its own
        self, minimum: int | None = None, maximum: int | None = None, pool: str | None = None, **others: Any
    ) -> Limits:
        """Let a pool follow demand between these limits until `unscale`, whatever its manifest says.

        Not Dask's own Adaptive, which is blind to GPUs: the operator does it, and goes on when this program ends.
        The answer has `minimum` and `maximum`; it may be awaited, and need not be.

        Args:
            minimum: pods that stay without demand; the manifest's, or 0, where it is left out.
            maximum: pods at most; the manifest's, or as many as a pool can have, where it is left out.
            pool: as `scale`.
            **others: `minimum_jobs`, `maximum_jobs` as in dask-jobqueue, which are pods; or of Dask's Adaptive, such as
                `interval`: a warning says what happens instead.

        Raises:
            KubeClusterError: as `scale`, or the limits count something else than pods.
        """
        minimum, maximum = explain_adaptive(minimum, maximum, others)
        if self.asynchronous:
            task = asyncio.create_task(self._resource.adapt(minimum, maximum, pool))
            return Limits.of(self._resource.body, minimum, maximum, pool).set_by(task)
        self.sync(self._resource.adapt, minimum, maximum, pool)
        return Limits.of(self._resource.body, minimum, maximum, pool)

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
        from gpudask.kubecluster.holds import Hold  # noqa: PLC0415 - it takes long to load

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
        """`add_pool` in the stock client's words; what is left out is as in the default pool.

        `custom_spec` is a worker group's `spec.worker`, as `make_worker_spec` makes it, instead of all others.

        Raises:
            KubeClusterError: as `add_pool`, or a word cannot be used: the message says what to write.
        """
        pool = pool_of_group(name, n_workers, image, resources, worker_command, env, custom_spec, self._resource.body)
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
            KubeClusterError: there is no such pool; or the API server refuses, and nothing is connected.
        """
        return self.sync(self._get_logs, cluster=cluster, scheduler=scheduler, workers=workers, pool=pool, tail=tail)

    async def _get_logs(
        self, cluster: bool = True, scheduler: bool = True, workers: Any = True, pool: str = "", tail: int | None = None
    ) -> Any:
        is_away = self.status != Status.running
        texts = await self._resource.read_logs(scheduler, bool(workers), pool, tail, is_needed=is_away)
        if texts is None:  # without rights on pods, what the processes themselves remember
            return await super()._get_logs(cluster=cluster, scheduler=scheduler, workers=workers)
        logs = Logs({name: Log(text) for name, text in texts.items()})
        if cluster and not pool:
            logs["Cluster"] = Log("\n".join(line for _, line in self._cluster_manager_logs))
        return logs

    def __repr__(self) -> str:
        pools = display.as_text(display.pool_rows(self._resource.body, self.scheduler_info["workers"]))
        wrong = str(self._conditions)  # once: it may change meanwhile
        wrong = f"; {wrong}" if wrong else ""
        return f"{type(self).__name__}({self.name}, {self.scheduler_address!r}, {pools or 'not started'}{wrong})"

    def _scaling_status(self) -> str:
        """HTML rows of pools for the widget: the base class knows none, and calls every cluster manually scaled."""
        rows = display.pool_rows(self._resource.body, self.scheduler_info["workers"])
        return display.as_html(rows) + self._conditions.as_html()

    def _repr_html_(self, cluster_status: Any = None) -> str:
        return str(super()._repr_html_(cluster_status=(cluster_status or "") + self._scaling_status()))
