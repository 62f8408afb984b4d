"""The client API: `KubeCluster`, its one error type, and `has_gpu` for tasks.

Importing this package imports neither distributed nor kr8s: the operator's image has none of them, and a
worker's image has no Kubernetes client. Names load on first use. Nothing here is used by the operator.

cluster.py has the class; docs/architecture.md says which part owns what. kube/ asks the API server, forward/ leads to
the scheduler's pod, stock/ reads what programs for other cluster managers say.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudask.kubecluster.cluster import KubeCluster
    from gpudask.kubecluster.errors import KubeClusterError
    from gpudask.kubecluster.placement import has_gpu
    from gpudask.kubecluster.resource import CreateMode
    from gpudask.kubecluster.stock.cluster_spec import make_cluster_spec, make_scheduler_spec, make_worker_spec

__all__ = [
    "CreateMode",
    "KubeCluster",
    "KubeClusterError",
    "discover",
    "has_gpu",
    "make_cluster_spec",
    "make_scheduler_spec",
    "make_worker_spec",
]

_MODULES = {
    "CreateMode": "resource",
    "KubeCluster": "cluster",
    "KubeClusterError": "errors",
    "has_gpu": "placement",
    "make_cluster_spec": "stock.cluster_spec",
    "make_scheduler_spec": "stock.cluster_spec",
    "make_worker_spec": "stock.cluster_spec",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for."""
    if name in _MODULES:
        return getattr(import_module(f"gpudask.kubecluster.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


async def discover(namespace: str | None = None) -> AsyncIterator[tuple[str, type[KubeCluster]]]:
    """The name of each GpuDaskCluster of a namespace, and the class whose `from_name` connects to it.

    For dask-ctl, too (entry point `dask_cluster_discovery`). Nothing where no API server answers or it refuses: a
    listing of all kinds of clusters does not end for one.
    """
    from gpudask.kubecluster.errors import KubeClusterError  # noqa: PLC0415 - see the module's docstring

    try:
        from gpudask.kubecluster.cluster import KubeCluster  # noqa: PLC0415 - without the extra `client` there is none
        from gpudask.kubecluster.kube.server import Server  # noqa: PLC0415

        server = await Server.connect(namespace)
        bodies = await server.clusters()
    except (ImportError, KubeClusterError):
        return
    for body in bodies:
        yield body["metadata"]["name"], KubeCluster
