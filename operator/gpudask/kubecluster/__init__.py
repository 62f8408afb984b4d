"""The client API: `KubeCluster`, its one error type, and `has_gpu` for tasks.

Importing this package imports neither distributed nor httpx: the operator's image has none of them, and a
worker's image has no Kubernetes client. Names load on first use. Nothing here is used by the operator.

cluster.py has the class; docs/architecture.md says which part owns what. kube/ asks the API server, forward/ leads to
the scheduler's pod, stock/ reads what programs for other cluster managers say.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudask.kubecluster.cluster import KubeCluster
    from gpudask.kubecluster.errors import KubeClusterError
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
    "make_cluster_spec": "stock.cluster_spec",
    "make_scheduler_spec": "stock.cluster_spec",
    "make_worker_spec": "stock.cluster_spec",
}
_GPU_RESOURCE = "GPU"
_PRINT_SECONDS = 5.0  # a debugger prints, too


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for."""
    if name in _MODULES:
        return getattr(import_module(f"gpudask.kubecluster.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, for TAB; they are loaded when they are used."""
    return sorted({*globals(), *__all__})


def has_gpu() -> bool:
    """True if the calling task runs on a worker that offers the Dask resource `GPU`.

    A worker of another pool on which GPU tasks fall back (`fallback` in the pool) offers it too, but has none: False.
    Cheap enough to call in every task. The device may be real or a stand-in (dask-cuda's device-less mode).
    Outside a task the answer is False.
    """
    # A process that runs tasks has loaded this module; one that has not need not pay for importing it.
    module = sys.modules.get("distributed.worker")
    if module is None:
        return False
    try:
        worker = module.get_worker()
    except ValueError:  # not in a task
        return False
    lent = getattr(worker, "gpudask_lent", ())  # set by preload/offers.py
    return _GPU_RESOURCE not in lent and worker.state.total_resources.get(_GPU_RESOURCE, 0) > 0


def discover(namespace: str | None = None) -> Discovery:
    """List the clusters of a namespace, when it is printed, or name by name and class by `async for`.

    For dask-ctl, too (entry point `dask_cluster_discovery`).
    """
    return Discovery(namespace)


class Discovery:
    """The name of each GpuDaskCluster of a namespace, and the class whose `from_name` connects to it.

    Nothing where no API server answers or it refuses: a listing of all kinds of clusters does not end for one. What is
    printed has the reason.
    """

    def __init__(self, namespace: str | None) -> None:
        self._namespace = namespace

    async def __aiter__(self) -> AsyncIterator[tuple[str, type[KubeCluster]]]:
        """Each name with its class."""
        from gpudask.kubecluster.errors import KubeClusterError  # noqa: PLC0415 - see the module's docstring

        try:
            from gpudask.kubecluster.cluster import KubeCluster  # noqa: PLC0415 - there is none without `client`

            names, _ = await self._list()
        except (ImportError, KubeClusterError):
            return
        for name in names:
            yield name, KubeCluster

    def __repr__(self) -> str:
        """The clusters by name, or why there are none to be seen."""
        import asyncio  # noqa: PLC0415
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

        from gpudask.kubecluster.errors import KubeClusterError  # noqa: PLC0415

        try:
            # In a thread: a notebook's own runs a loop already.
            with ThreadPoolExecutor(1) as thread:
                names, namespace = thread.submit(lambda: asyncio.run(self._list_in_time())).result()
        except (ImportError, KubeClusterError) as error:
            return f"<no clusters can be seen: {error}>"
        except TimeoutError:
            return f"<no clusters can be seen: the API server did not answer within {_PRINT_SECONDS:g} s>"
        if not names:
            return f"<no clusters in namespace {namespace}: KubeCluster() makes one>"
        return f"<clusters in namespace {namespace}: {', '.join(names)}. KubeCluster.from_name({names[0]!r}) connects>"

    async def _list_in_time(self) -> tuple[list[str], str]:
        import asyncio  # noqa: PLC0415

        async with asyncio.timeout(_PRINT_SECONDS):
            return await self._list()

    async def _list(self) -> tuple[list[str], str]:
        from gpudask.kubecluster.kube.server import Server  # noqa: PLC0415

        server = await Server.connect(self._namespace)
        try:
            return [body["metadata"]["name"] for body in await server.clusters()], server.namespace
        finally:
            await server.session.close()
