"""The NetworkPolicy of a cluster: the peers that may connect to its pods.

A Dask scheduler and its workers run what they are sent, so a connection is all that it takes to act as the cluster.
What a pod's own node sends, such as probes and forwarded ports, no policy holds back.
"""

from __future__ import annotations

from gpudask.api import Json
from gpudask.api.addresses import DASHBOARD_PORT
from gpudask.api.network import NAMESPACE_NAME
from gpudask.api.resource import LABEL_CLUSTER, Cluster
from gpudask.desired import names, pod

KIND = "NetworkPolicy"
# As the chart labels the operator's pods, whatever the release's name is.
_OPERATOR = {"app.kubernetes.io/name": "gpudask", "app.kubernetes.io/component": "operator"}


def policy(cluster: Cluster, operator_namespace: str) -> Json:
    """The policy: the cluster's own pods and its peers may connect to all, the operator to the preload's port.

    That port is a number because workers have no port of that name, and a name that a pod lacks is a reason for some
    network plugins to ignore the rule.

    Args:
        cluster: whose pods it is for.
        operator_namespace: where the operator's pods are.
    """
    spec = cluster.spec.network
    operator = {
        "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: operator_namespace}},
        "podSelector": {"matchLabels": _OPERATOR},
    }
    peers = [peer.model_dump(mode="json", by_alias=True, exclude_defaults=True) for peer in spec.allow_from]
    own = {"matchLabels": {LABEL_CLUSTER: cluster.name}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": KIND,
        "metadata": pod.metadata(cluster, names.network_policy(cluster.name), "network"),
        "spec": {
            "podSelector": own,
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": own}, *peers]},
                {"from": [operator], "ports": [{"protocol": "TCP", "port": DASHBOARD_PORT}]},
            ],
        },
    }
