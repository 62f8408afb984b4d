"""`KubeCluster`: a Dask cluster manager for a GpuDaskCluster, made by it or by somebody else.

Built on `distributed.deploy.Cluster`, not on dask_kubernetes' class: that one's start reads and creates
kubernetes.dask.org objects. From distributed come the parts that users know: `Client(cluster)`, the widget, `async
with`. Here is how a cluster comes and goes; the link to its scheduler is in linked.py, sizes in sized.py.
"""

# mypy: disallow-untyped-calls=False, disallow-any-generics=False
from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Self

import dask.config
from distributed.security import Security

from gpudask.kubecluster import lifecycle
from gpudask.kubecluster.access import pod_namespace
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.lifecycle import Created, CreateMode
from gpudask.kubecluster.manifest import DEFAULT_IMAGE, Size, Words, chosen, manifest, name_of, open_to
from gpudask.kubecluster.manifest_file import read_manifest
from gpudask.kubecluster.naming import cluster_name
from gpudask.kubecluster.server import Server
from gpudask.kubecluster.shown import ShownCluster
from gpudask.kubecluster.sizes import user
from gpudask.kubecluster.timing import Timing, limit_of

logger = logging.getLogger(__name__)

Json = dict[str, Any]


class KubeCluster(ShownCluster):
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
            words but name and namespace.
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
        timing = timing or Timing()
        custom = read_manifest(custom_cluster_spec)
        self._words = Words(
            image, n_workers, gpus, resources, env, worker_command, idle_timeout, scheduler_service_type, protocol,
            pools, custom, jupyter or None,
        )  # fmt: skip
        self._mode = CreateMode.of(create_mode or CreateMode.CREATE_OR_CONNECT)
        self._shutdown_on_close = shutdown_on_close
        self._found: Created | None = None
        wanted = name or name_of(custom) or None
        full_name = cluster_name(wanted, user=user(), nonce=secrets.token_hex(3))
        self._manifest = {} if self._mode is CreateMode.CONNECT_ONLY else self._make(full_name)
        creates = self._mode is not CreateMode.CONNECT_ONLY
        super().__init__(
            full_name,
            namespace=namespace or self._manifest.get("metadata", {}).get("namespace"),
            timeout=_limit_seconds(
                timeout, resource_timeout, timing.created_seconds if creates else timing.found_seconds
            ),
            port_forward=bool(port_forward_cluster_ip),
            security=security,
            scheduler_forward_port=scheduler_forward_port,
            compare_versions=compare_versions,
            kubeconfig=kubeconfig,
            context=context,
            asynchronous=asynchronous,
            loop=loop,
            quiet=quiet,
            timing=timing,
        )
        self._start_now()

    @classmethod
    def from_name(cls, name: str, namespace: str | None = None, **options: Any) -> Self:
        """Connect to the existing cluster `name`, also after a kernel restart; `options` are the class's."""
        return cls(name, namespace=namespace, **{"create_mode": CreateMode.CONNECT_ONLY, **options})

    # ------------------------------------------------------------------ coming and going

    def _make(self, name: str) -> Json:
        image = str(dask.config.get("gpudask.image", None) or DEFAULT_IMAGE)
        return manifest(name, self._words, default_image=image)

    def _may_be_blind(self) -> bool:
        return self._mode is CreateMode.CONNECT_ONLY

    async def _find(self, server: Server) -> Json:
        wanted = self._manifest or {"metadata": {"name": self.name}}
        program = pod_namespace() if self._is_inside else ""
        if program and self._manifest and self._words.custom_cluster_spec is None:
            wanted = open_to(wanted, program, server.namespace)
        body, is_new = await lifecycle.find_or_create(server, wanted, self._mode)
        if self._shutdown_on_close is None:
            self._shutdown_on_close = is_new
        if is_new:
            self._log(f"created cluster {self.name!r} in namespace {self.namespace!r}: {chosen(body)}")
        elif said := self._words.said():
            self._log(f"cluster {self.name!r} exists already: it keeps its own {', '.join(said)}")
        uid = body["metadata"]["uid"]
        self._found = Created(self.name, self.namespace, uid, self._kubeconfig, self._context)
        self._note_end()
        return body

    @property
    def shutdown_on_close(self) -> bool:
        """Whether the cluster is deleted when this object is closed or the interpreter ends. It may be set later."""
        return bool(self._shutdown_on_close)

    @shutdown_on_close.setter
    def shutdown_on_close(self, value: bool) -> None:
        self._shutdown_on_close = value
        self._note_end()

    def _note_end(self) -> None:
        """Note for the interpreter's end whether the cluster goes then."""
        if self._found is not None:
            (lifecycle.delete_at_exit if self._shutdown_on_close else lifecycle.keep)(self._found)

    async def _close(self) -> None:
        await super()._close()
        if self._found is None:
            return
        if self._shutdown_on_close:
            try:
                await lifecycle.delete(self._found, self._timing)
            except KubeClusterError as error:  # not raised: it would hide why a start failed
                logger.warning("gpudask: %s; it is tried again when this program ends", error)
                return
        lifecycle.keep(self._found)
        self._found = None


def _limit_seconds(timeout: float | str | None, resource_timeout: float | str | None, default: float) -> float:
    if timeout is not None and resource_timeout is not None:
        raise KubeClusterError(
            f"timeout={timeout} beside resource_timeout={resource_timeout}",
            reason="both are the seconds to wait for the scheduler",
            next_step="Write timeout= alone",
        )
    given = limit_of(resource_timeout if timeout is None else timeout)
    return default if given is None else given
