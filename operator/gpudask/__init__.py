"""gpudask: a Kubernetes operator for mixed CPU/GPU Dask clusters.

The layers, each importing only what stands to its right:
`__main__ -> handlers -> reconcile -> mirror | metrics -> clients -> planning -> desired | scaling -> api`.

Programs use `gpudask.KubeCluster` and, inside tasks, `gpudask.has_gpu`. They load on first use: the
operator's image has no distributed, and a Dask worker's image no Kubernetes client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudask.kubecluster import (
        CreateMode,
        KubeCluster,
        KubeClusterError,
        discover,
        has_gpu,
        make_cluster_spec,
        make_scheduler_spec,
        make_worker_spec,
    )

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


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for."""
    if name in __all__:
        from gpudask import entry, kubecluster  # noqa: PLC0415 - see the module's docstring

        try:
            return getattr(kubecluster, name)
        except ModuleNotFoundError as error:
            if advice := entry.missing_extra(error, "client"):
                raise ModuleNotFoundError(f"gpudask.{name}: {advice}", name=error.name) from error
            raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, for TAB; they are loaded when they are used."""
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext gpudask`: cells that begin with `%%gpudask` run on a worker of a GPU pool."""
    from gpudask.kubecluster.on_gpu import magic  # noqa: PLC0415 - see the module's docstring

    magic.load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext gpudask`: what these cells keep on their worker is freed."""
    from gpudask.kubecluster.on_gpu import magic  # noqa: PLC0415 - see the module's docstring

    magic.unload(shell)
