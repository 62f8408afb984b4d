"""What a program uses: `KubeCluster`, its one error type, and `has_gpu` for tasks.

Importing this package imports neither distributed nor kr8s: the operator's image has none of them, and a
worker's image has no Kubernetes client. Names load on first use. Nothing here is used by the operator.

cluster.py has the class; docs/architecture.md says which part owns what. kube/ asks the API server, forward/ leads to
the scheduler's pod.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudask.kubecluster.cluster import KubeCluster
    from gpudask.kubecluster.discovery import discover
    from gpudask.kubecluster.errors import KubeClusterError
    from gpudask.kubecluster.placement import has_gpu
    from gpudask.kubecluster.resource import CreateMode

__all__ = ["CreateMode", "KubeCluster", "KubeClusterError", "discover", "has_gpu"]

_MODULES = {
    "CreateMode": "resource",
    "KubeCluster": "cluster",
    "KubeClusterError": "errors",
    "discover": "discovery",
    "has_gpu": "placement",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for."""
    if name in _MODULES:
        return getattr(import_module(f"gpudask.kubecluster.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
