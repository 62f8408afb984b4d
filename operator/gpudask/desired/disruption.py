"""The PodDisruptionBudget of a cluster: it guards the scheduler pod, and nothing else.

Workers need none: what evicts one waits for its drain (`termination`). The scheduler holds what cannot be moved.
"""

from __future__ import annotations

from typing import Any

from gpudask.api import addresses
from gpudask.api.resource import LABEL_CLUSTER, LABEL_DASK_COMPONENT, Cluster
from gpudask.desired import pod

Json = dict[str, Any]


def budget(cluster: Cluster, *, guarded: bool) -> Json:
    """The budget; not `guarded`, it lets the scheduler be evicted.

    The number is a whole one because the pods' owner has no scale subresource, and a scheduler that is not ready may
    always be evicted: https://kubernetes.io/docs/tasks/run-application/configure-pdb/
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": pod.metadata(cluster, addresses.service(cluster.name), "scheduler"),
        "spec": {
            "minAvailable": 1 if guarded else 0,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": {LABEL_CLUSTER: cluster.name, LABEL_DASK_COMPONENT: "scheduler"}},
        },
    }
