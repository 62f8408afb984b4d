"""CoreDNS, which runs in the cluster from the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from local.control_plane.components import API_ADDRESS, DNS_ADDRESS
from local.control_plane.health import name_blocker
from local.control_plane.kube_api import KubeApi
from local.errors import LocalClusterError

_MANIFESTS = Path(__file__).with_name("coredns.yaml")
_NAMESPACE = "kube-system"
_PATHS = {
    "ServiceAccount": f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts",
    "ConfigMap": f"/api/v1/namespaces/{_NAMESPACE}/configmaps",
    "Service": f"/api/v1/namespaces/{_NAMESPACE}/services",
    "Deployment": f"/apis/apps/v1/namespaces/{_NAMESPACE}/deployments",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}


def apply_dns(api: KubeApi, *, image: str, node: str) -> None:
    """Have CoreDNS as wanted, on the node that has no GPUs to keep free."""
    for manifest in yaml.safe_load_all(_MANIFESTS.read_text()):
        if manifest["kind"] == "Deployment":
            pod = manifest["spec"]["template"]["spec"]
            pod["containers"][0]["image"] = image
            pod["nodeSelector"] = {"kubernetes.io/hostname": node}
        if manifest["kind"] == "Service":
            manifest["spec"]["clusterIP"] = DNS_ADDRESS
        api.apply(f"{_PATHS[manifest['kind']]}/{manifest['metadata']['name']}", manifest)


def dns_blocker(api: KubeApi) -> str | None:
    """Tell why names do not resolve yet; None when they do.

    A name is asked for, since the status may be of pods that were killed with everything else. The answer comes
    from a pod, through a Service, and is what the API server says: so all three work.
    """
    try:
        deployment: Any = api.get(f"{_PATHS['Deployment']}/coredns")
    except LocalClusterError as error:
        return str(error)
    status = (deployment or {}).get("status", {})
    if deployment and status.get("observedGeneration") == deployment["metadata"]["generation"]:
        ready, wanted = status.get("readyReplicas", 0), deployment["spec"]["replicas"]
        if ready == wanted == status.get("updatedReplicas", 0):
            return name_blocker(DNS_ADDRESS, "kubernetes.default.svc.cluster.local", API_ADDRESS)
    return "CoreDNS is not ready: `kubectl -n kube-system describe pods -l k8s-app=kube-dns` says why"
