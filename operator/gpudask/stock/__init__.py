"""The stock operator's objects (DaskCluster, DaskWorkerGroup, DaskAutoscaler) in the terms of a GpuDaskCluster.

Pure: documents in; our documents, and notes on what they cannot say or errors, out. The operator serves stock objects
by it, `gpudask convert` and `KubeCluster(custom_cluster_spec=...)` convert by it. Fields are those of dask-kubernetes
2026.3.0: https://kubernetes.dask.org/en/latest/operator_resources.html
"""

from __future__ import annotations

from typing import Any

from gpudask.api.resource import STOCK_GROUP


def is_stock(document: Any) -> bool:
    """True for an object of the stock operator's."""
    return isinstance(document, dict) and str(document.get("apiVersion")).startswith(STOCK_GROUP)
