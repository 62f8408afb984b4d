"""What a program uses: `KubeCluster`, its one error type, and `has_gpu` for tasks.

Importing this package imports neither distributed nor kr8s: the operator's image has none of them, and a
worker's image has no Kubernetes client. Names load on first use. Nothing here is used by the operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudask.kubecluster.cluster import KubeCluster
    from gpudask.kubecluster.errors import KubeClusterError
    from gpudask.kubecluster.placement import has_gpu

__all__ = ["KubeCluster", "KubeClusterError", "has_gpu"]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for."""
    if name == "KubeCluster":
        from gpudask.kubecluster.cluster import KubeCluster  # noqa: PLC0415 - see the module's docstring

        return KubeCluster
    if name == "KubeClusterError":
        from gpudask.kubecluster.errors import KubeClusterError  # noqa: PLC0415

        return KubeClusterError
    if name == "has_gpu":
        from gpudask.kubecluster.placement import has_gpu  # noqa: PLC0415

        return has_gpu
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
