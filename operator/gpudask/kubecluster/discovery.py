"""Which clusters there are; also for dask-ctl (entry point `dask_cluster_discovery`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from gpudask.kubecluster.errors import KubeClusterError

if TYPE_CHECKING:
    from gpudask.kubecluster.cluster import KubeCluster


async def discover(namespace: str | None = None) -> AsyncIterator[tuple[str, type[KubeCluster]]]:
    """The name of each GpuDaskCluster of a namespace, and the class whose `from_name` connects to it.

    Nothing where no API server answers or it refuses: a listing of all kinds of clusters does not end for one.
    """
    try:
        from gpudask.kubecluster.cluster import KubeCluster  # noqa: PLC0415 - without the extra `client` there is none
        from gpudask.kubecluster.kube.server import Server  # noqa: PLC0415

        server = await Server.connect(namespace)
        bodies = await server.clusters()
    except (ImportError, KubeClusterError):
        return
    for body in bodies:
        yield body["metadata"]["name"], KubeCluster
