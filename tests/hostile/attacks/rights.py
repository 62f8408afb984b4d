"""Requests without a right: an editor of a namespace is refused them, whatever the operator's roles add."""

from __future__ import annotations

from gpudask.api.resource import PLURAL
from tests.hostile.attack import OWN, Attack, Expected, Request, create, delete, merge, path, read
from tests.hostile.attacks.objects import cluster, plain, pod

_THERE, _HOME = {"namespace": "@VICTIM@"}, {"namespace": "@HOME@"}
_RBAC = "rbac.authorization.k8s.io/v1"
_STATUS = {"status": {"phase": "Ready", "scheduler": {"address": "tcp://mallory-was-here"}}}
_BINDING = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "x"}, "target": {"kind": "Node", "name": "n"}}
_ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
_AS_OPERATOR = {"Impersonate-User": "system:serviceaccount:@HOME@:gpudask"}


def _refused(name: str, *requests: Request) -> Attack:
    return Attack(name, "rights", requests, expected=Expected.REFUSED)


ATTACKS = (
    _refused("read the victim's clusters, pods and Secrets", *(read(p, **_THERE) for p in (PLURAL, "pods", "secrets"))),
    _refused("make a pod beside the victim's", create("pods", pod("x"), **_THERE)),
    _refused("make a cluster beside the victim's", create(PLURAL, cluster("x"), **_THERE)),
    _refused("delete the victim's cluster and pods", delete(PLURAL, "keeper", **_THERE), delete("pods", "", **_THERE)),
    _refused("edit the victim's cluster", merge(PLURAL, "keeper", {"spec": {"suspend": True}}, **_THERE)),
    _refused("write its own cluster's status", merge(f"{PLURAL}/{OWN}/status", "", _STATUS)),
    _refused("write its own pod's status", merge("pods/own-cpu-worker-0/status", "", _STATUS)),
    _refused("put a pod on a node by hand", create("pods/own-cpu-worker-0/binding", _BINDING)),
    _refused("read the operator's key", read("secrets", "gpudask-key", **_HOME), read("secrets", **_HOME)),
    _refused("make a Secret for the operator", create("secrets", plain("Secret", "gpudask-key"), **_HOME)),
    _refused(
        "take the operator's Lease",
        merge(
            "leases", "gpudask", {"spec": {"holderIdentity": "x"}}, namespace="@HOME@", group="coordination.k8s.io/v1"
        ),
        delete("leases", "gpudask", namespace="@HOME@", group="coordination.k8s.io/v1"),
    ),
    _refused(
        "take the operator's account",
        create("serviceaccounts/gpudask/token", {"spec": {}}, **_HOME),
        Request("GET", path("pods"), headers=_AS_OPERATOR),
        Request("GET", path("pods", **_THERE), headers={"Impersonate-User": "system:admin"}),
    ),
    _refused(
        "bind itself to another role",
        create("rolebindings", plain("RoleBinding", "x", _RBAC, roleRef=_ROLE), group=_RBAC),
        create(
            "clusterrolebindings", plain("ClusterRoleBinding", "x", _RBAC, roleRef=_ROLE), namespace="", group=_RBAC
        ),
    ),
    _refused(
        "edit the definition, or put a webhook before it",
        merge(f"customresourcedefinitions/{PLURAL}.gpudask.dev", "", {}, namespace="", group="apiextensions.k8s.io/v1"),
        create(
            "mutatingwebhookconfigurations",
            plain("MutatingWebhookConfiguration", "x", "admissionregistration.k8s.io/v1"),
            namespace="",
            group="admissionregistration.k8s.io/v1",
        ),
    ),
    _refused(
        "delete all clusters of all namespaces",
        delete(PLURAL, "", namespace=""),
        read(PLURAL, namespace=""),
    ),
)
