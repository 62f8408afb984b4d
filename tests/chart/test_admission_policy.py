"""The admission policy: the operator's account, even with an administrator's rights, writes only what clusters own."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.builders import a_manifest, a_pool
from tests.conftest import CRD, CRON_JOB_CRD, JOB_CRD, RECORD_CRD
from tests.eventually import eventually

if TYPE_CHECKING:
    from tests.chart.conftest import Cluster, Helm

pytestmark = pytest.mark.api

ACCOUNT = "system:serviceaccount:gpudask-system:gpudask"
TEAM = "team-a"
MERGE_PATCH, STRATEGIC_PATCH = "application/merge-patch+json", "application/strategic-merge-patch+json"
OWNER = {"apiVersion": "gpudask.dev/v1alpha1", "kind": "GpuDaskCluster", "name": "demo", "uid": "1", "controller": True}
SHARES = {key: value for key, value in OWNER.items() if key != "controller"}
LABELS = {"gpudask.dev/cluster": "demo"}
ADMINISTRATOR = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: the-operator-is-administrator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: User, name: "system:serviceaccount:gpudask-system:gpudask", apiGroup: rbac.authorization.k8s.io}]
"""
SPECS: dict[str, dict[str, Any]] = {
    "ConfigMap": {"apiVersion": "v1", "data": {"a": "b"}},
    "Service": {"apiVersion": "v1", "spec": {"ports": [{"port": 80}]}},
    "Pod": {"apiVersion": "v1", "spec": {"containers": [{"name": "dask", "image": "x"}]}},
    "PodDisruptionBudget": {
        "apiVersion": "policy/v1",
        "spec": {"minAvailable": 0, "selector": {"matchLabels": {"a": "b"}}},
    },
    "NetworkPolicy": {"apiVersion": "networking.k8s.io/v1", "spec": {"podSelector": {}}},
    "Ingress": {
        "apiVersion": "networking.k8s.io/v1",
        "spec": {"defaultBackend": {"service": {"name": "x", "port": {"number": 80}}}},
    },
    "ServiceAccount": {"apiVersion": "v1"},
}


def an(kind: str, name: str = "demo-x", *, owner: Any = OWNER, labels: Any = LABELS, **spec: Any) -> dict[str, Any]:
    """An object of the cluster `demo`."""
    metadata = {"name": name, "labels": labels, "ownerReferences": [owner] if owner else []}
    body = copy.deepcopy(SPECS[kind]) | {"kind": kind, "metadata": metadata}
    if spec:
        body["spec"] |= spec
    return body


@pytest.fixture(scope="module")
def walled(cluster: Cluster, helm: Helm) -> Cluster:
    """The API server with the policy, and an account that may do anything but for it."""
    cluster.define(CRD, RECORD_CRD, JOB_CRD, CRON_JOB_CRD)
    for name in ("gpudask-system", TEAM):
        cluster("create", "namespace", name)
        cluster("create", "serviceaccount", "default", "--namespace", name)
    cluster("apply", "-f", "-", stdin=ADMINISTRATOR)
    install(cluster, helm)
    return cluster


def install(cluster: Cluster, helm: Helm, *options: str) -> None:
    """Apply the policy as the chart renders it, and wait until the API server heeds it as it is now."""
    found = [body for body in helm.manifests(*options) if body["kind"].startswith("ValidatingAdmissionPolicy")]
    text = yaml.safe_dump_all(found)
    cluster("apply", "-f", "-", stdin=text)
    marker = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "is-it-heeded"}}
    eventually(
        lambda: "writes only objects" in create(cluster, marker, dry_run=True),
        "the policy is heeded",
    )


GROUPS = {
    "Ingress": "networking.k8s.io/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
    "Deployment": "apps/v1",
    **dict.fromkeys(("GpuDaskCluster", "GpuDaskJob", "GpuDaskRecord"), "gpudask.dev/v1alpha1"),
    **dict.fromkeys(("DaskCluster", "DaskJob", "DaskWorkerGroup"), "kubernetes.dask.org/v1"),
}
"""Where a kind is not in v1."""
PLURALS = {"Ingress": "ingresses", "NetworkPolicy": "networkpolicies"}
"""Where it is not the kind and an s."""


def path_of(kind: str, namespace: str, name: str = "") -> str:
    group = GROUPS.get(kind, "v1")
    plural = PLURALS.get(kind, f"{kind.lower()}s")
    return f"/{'apis' if '/' in group else 'api'}/{group}/namespaces/{namespace}/{plural}{name and '/'}{name}"


def request(cluster: Cluster, method: str, path: str, body: Any = None, content_type: str = "application/json") -> str:
    """What the API server says to a request of the operator's account; empty: it did it.

    A kubectl for each of them takes much longer than all of the API server.
    """
    answer = replace(cluster.api, user=ACCOUNT).answer(method, path, body, content_type)
    return json.dumps(answer) if answer["kind"] == "Status" and answer["status"] != "Success" else ""


def create(cluster: Cluster, body: dict[str, Any], *, namespace: str = TEAM, dry_run: bool = False) -> str:
    path = path_of(body["kind"], namespace)
    return request(cluster, "POST", f"{path}?fieldValidation=Strict{'&dryRun=All' if dry_run else ''}", body)


def delete(cluster: Cluster, body: dict[str, Any]) -> str:
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
    return request(cluster, "DELETE", path_of(body["kind"], TEAM, body["metadata"]["name"]), options)


def patch(
    cluster: Cluster, kind: str, name: str, body: Any, *, namespace: str = TEAM, content_type: str = MERGE_PATCH
) -> str:
    return request(cluster, "PATCH", path_of(kind, namespace, name), body, content_type)


def others_create(cluster: Cluster, body: dict[str, Any]) -> dict[str, Any]:
    """Have an administrator create it; return it as it is then."""
    made: dict[str, Any] = cluster.api.answer("POST", path_of(body["kind"], TEAM), body)
    assert made["kind"] == body["kind"], made
    return made


@pytest.mark.parametrize("kind", ["ConfigMap", "Service", "Pod", "PodDisruptionBudget", "NetworkPolicy"])
def test_what_belongs_to_a_cluster_is_made_changed_and_deleted(walled: Cluster, kind: str) -> None:
    body = an(kind, f"demo-{kind.lower()}")
    assert create(walled, body) == ""
    assert patch(walled, kind, body["metadata"]["name"], {"metadata": {"annotations": None}}) == ""
    assert delete(walled, body) == ""


def a_record(name: str = "demo-0a1b2c3d", **metadata: Any) -> dict[str, Any]:
    """What stays of the cluster `demo`."""
    known = {"name": name, "labels": LABELS} | metadata
    return {"apiVersion": "gpudask.dev/v1alpha1", "kind": "GpuDaskRecord", "metadata": known, "record": {"began": "x"}}


def test_a_record_of_a_cluster_is_made_changed_and_deleted(walled: Cluster) -> None:
    assert create(walled, a_record()) == ""
    path = path_of("GpuDaskRecord", TEAM, "demo-0a1b2c3d")
    assert request(walled, "PUT", path, walled.api.get(path) | {"record": {"began": "later"}}) == ""
    assert delete(walled, a_record()) == ""


@pytest.mark.parametrize(
    "fault",
    [
        {"labels": {}},
        {"name": "other-0a1b2c3d"},
        {"ownerReferences": [OWNER]},
        {"finalizers": ["example.com/kept-for-ever"]},
    ],
    ids=["no-label", "another-cluster", "an-owner", "a-finalizer"],
)
def test_no_other_record_is_made(walled: Cluster, fault: dict[str, Any]) -> None:
    assert "writes GpuDaskRecords only" in create(
        walled, a_record() | {"metadata": {**a_record()["metadata"], **fault}}
    )


WRONG = {
    "no-label": {"labels": {}},
    "no-owner": {"owner": None},
    "another-kind-of-owner": {"owner": OWNER | {"kind": "Other"}},
    "another-group": {"owner": OWNER | {"apiVersion": "v1", "kind": "GpuDaskCluster"}},
    "no-controller": {"owner": {key: value for key, value in OWNER.items() if key != "controller"}},
    "another-name": {"owner": OWNER | {"name": "other"}},
}


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("kind", SPECS)
def test_nothing_else_is_made(walled: Cluster, kind: str, fault: str) -> None:
    assert "writes only objects" in create(walled, an(kind, **WRONG[fault]))


@pytest.mark.parametrize("kind", SPECS)
def test_what_others_made_is_not_read_by_a_patch_nor_taken_nor_deleted(walled: Cluster, kind: str) -> None:
    name = f"theirs-{kind.lower()}"
    body = an(kind, name, owner=None, labels={"a": "b"})
    others_create(walled, body)
    assert "writes only objects" in patch(walled, kind, name, {})
    taken = {"metadata": {"labels": LABELS, "ownerReferences": [OWNER]}}
    assert "writes only objects" in patch(walled, kind, name, taken)
    assert "writes only objects" in delete(walled, body)


def a_preload(name: str = "gpudask-preload-0123", *owners: Any, **metadata: Any) -> dict[str, Any]:
    """The code that runs in schedulers, which several clusters own."""
    known = {"name": name, "labels": {"gpudask.dev/preload": "shared"}, "ownerReferences": list(owners or (SHARES,))}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": known | metadata,
        "data": {"a": "b"},
        "immutable": True,
    }


def refer(cluster: Cluster, name: str, *references: Any) -> str:
    """What the API server says to a strategic merge patch of owner references by the operator's account."""
    body = {"metadata": {"ownerReferences": references}}
    return patch(cluster, "ConfigMap", name, body, content_type=STRATEGIC_PATCH)


def test_what_clusters_share_is_made_referred_to_let_go_and_deleted(walled: Cluster) -> None:
    body = a_preload()
    assert create(walled, body) == ""
    assert refer(walled, "gpudask-preload-0123", SHARES | {"name": "other", "uid": "2"}) == ""
    assert refer(walled, "gpudask-preload-0123", {"$patch": "delete", "uid": "1"}) == ""
    found = walled("get", "configmap", "gpudask-preload-0123", "--namespace", TEAM, "-o", "json").stdout
    assert [item["name"] for item in json.loads(found)["metadata"]["ownerReferences"]] == ["other"]
    assert refer(walled, "gpudask-preload-0123", {"$patch": "delete", "uid": "2"}) == ""
    assert delete(walled, body) == ""


NO_PRELOAD = {
    "another name": a_preload("preload-0123"),
    "no label": a_preload(labels={}),
    "no owner": a_preload(ownerReferences=[]),
    "another kind of owner": a_preload("gpudask-preload-0123", SHARES, SHARES | {"kind": "Other", "uid": "2"}),
    "a controller": a_preload("gpudask-preload-0123", SHARES | {"controller": True}),
    "one that can be edited": a_preload() | {"immutable": False},
    "another kind": {key: value for key, value in a_preload().items() if key not in ("data", "immutable")}
    | {"kind": "ServiceAccount"},
}


@pytest.mark.parametrize("fault", NO_PRELOAD)
def test_nothing_else_passes_for_what_clusters_share(walled: Cluster, fault: str) -> None:
    assert "writes only objects" in create(walled, NO_PRELOAD[fault])


def test_what_others_made_is_not_taken_for_what_clusters_share(walled: Cluster) -> None:
    theirs = a_preload("gpudask-preload-theirs", labels={"a": "b"})
    can_be_edited = a_preload("gpudask-preload-edited") | {"immutable": False}
    for body in (theirs, can_be_edited):
        name = body["metadata"]["name"]
        others_create(walled, body)
        marked = {"metadata": {"labels": {"gpudask.dev/preload": "shared"}}, "immutable": True}
        assert "writes only objects" in patch(walled, "ConfigMap", name, marked)
    assert "writes only objects" in delete(walled, theirs)
    assert delete(walled, can_be_edited) == "", "it says that it is ours, and cannot be right"


def test_no_secret_is_made_read_or_deleted(walled: Cluster) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs"}, "stringData": {"a": "hush"}}
    others_create(walled, secret)
    said = patch(walled, "Secret", "theirs", {})
    assert "writes no Secret" in said
    assert "hush" not in said
    assert "writes no Secret" in delete(walled, secret)
    ours = secret | {"metadata": {"name": "demo-x", "labels": LABELS, "ownerReferences": [OWNER]}}
    assert "writes no Secret" in create(walled, ours)


def test_the_key_is_made_once_and_is_no_service_accounts_token(walled: Cluster) -> None:
    key = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "gpudask-key"}, "type": "Opaque"}
    assert "writes no Secret" in create(walled, key, namespace=TEAM)
    account = {"annotations": {"kubernetes.io/service-account.name": "default"}}
    token = key | {"type": "kubernetes.io/service-account-token", "metadata": key["metadata"] | account}
    assert "writes no Secret" in create(walled, token, namespace="gpudask-system")
    assert create(walled, key, namespace="gpudask-system") == ""
    assert "writes no Secret" in patch(walled, "Secret", "gpudask-key", {}, namespace="gpudask-system")


TEMPLATE_FIELDS: dict[str, dict[str, Any]] = {
    "hostPath": {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]},
    "hostNetwork": {"hostNetwork": True},
    "hostPID": {"hostPID": True},
    "hostIPC": {"hostIPC": True},
    "hostPort": {"containers": [{"name": "a", "image": "x", "ports": [{"containerPort": 1, "hostPort": 1}]}]},
    "privileged": {"containers": [{"name": "a", "image": "x", "securityContext": {"privileged": True}}]},
    "capabilities": {
        "initContainers": [{"name": "i", "image": "x", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]
    },
}


@pytest.mark.parametrize("field", TEMPLATE_FIELDS)
def test_no_pod_reaches_its_node_by_default(walled: Cluster, field: str) -> None:
    assert "limits.templateFields" in create(walled, an("Pod", "demo-node", **TEMPLATE_FIELDS[field]))


def test_a_service_account_may_be_named_by_default(walled: Cluster) -> None:
    walled("create", "serviceaccount", "s3", "--namespace", TEAM)
    assert create(walled, an("Pod", "demo-s3", serviceAccountName="s3"), dry_run=True) == ""


def test_no_pod_runs_in_the_systems_namespaces(walled: Cluster) -> None:
    walled("create", "serviceaccount", "default", "--namespace", "kube-system")
    assert "limits.closedNamespaces" in create(walled, an("Pod"), namespace="kube-system")


@pytest.mark.parametrize(("kind", "said"), [("NodePort", "serviceTypes"), ("LoadBalancer", "serviceTypes")])
def test_no_service_leads_outside_by_default(walled: Cluster, kind: str, said: str) -> None:
    assert f"limits.{said}" in create(walled, an("Service", type=kind))
    assert create(walled, an("Service", "demo-inside")) == ""
    assert f"limits.{said}" in patch(walled, "Service", "demo-inside", {"spec": {"type": kind}})
    walled("delete", "service", "demo-inside", "--namespace", TEAM)


def test_no_service_is_annotated_by_default(walled: Cluster) -> None:
    body = an("Service")
    body["metadata"]["annotations"] = {"external-dns.alpha.kubernetes.io/hostname": "bank.example"}
    assert "limits.serviceAnnotations" in create(walled, body)


def test_clusters_are_not_made_edited_or_deleted(walled: Cluster) -> None:
    body = a_manifest(a_pool(), name="mine", idle={"frozenFor": "1h"})
    assert "makes a GpuDaskCluster only" in create(walled, body)
    others_create(walled, body)
    assert "changes nothing of a GpuDaskCluster" in patch(walled, "GpuDaskCluster", "mine", {"spec": {"suspend": True}})
    assert "deletes a GpuDaskCluster only where" in delete(walled, body)


@pytest.mark.parametrize("asked", ["deleteAfter", "shutdownAfterDisconnect"])
def test_one_that_asks_for_it_is_deleted(walled: Cluster, asked: str) -> None:
    body = a_manifest(a_pool(), name=f"brief-{asked.lower()[:8]}", idle={asked: "1h"})
    others_create(walled, body)
    assert delete(walled, body) == ""


def test_others_are_not_concerned(walled: Cluster) -> None:
    body = an("ConfigMap", "somebodys", owner=None, labels={})
    walled(
        "create",
        "--namespace",
        TEAM,
        "--as",
        "alice",
        "--as-group",
        "system:masters",
        "-f",
        "-",
        stdin=yaml.safe_dump(body),
    )


def test_what_the_chart_allows_is_allowed(walled: Cluster, helm: Helm) -> None:
    fields = ",".join(TEMPLATE_FIELDS)
    install(
        walled, helm, "--set", f"limits.templateFields={{{fields}}},limits.serviceTypes={{ClusterIP,NodePort}}",
        "--set", "limits.serviceAnnotations=true,mirror.enabled=true",
        "--set-json", "limits.closedNamespaces=[]",
    )  # fmt: skip
    eventually(lambda: create(walled, an("Service", type="NodePort"), dry_run=True) == "", "NodePort")
    for spec in TEMPLATE_FIELDS.values():
        assert create(walled, an("Pod", "demo-allowed", **spec), dry_run=True) == ""
    said = create(walled, an("Pod", serviceAccountName="s3"), dry_run=True)
    assert "serviceAccountName is not among limits.templateFields" in said
    body = a_manifest(a_pool(), name="shown")
    others_create(walled, body)
    assert patch(walled, "GpuDaskCluster", "shown", {"spec": {"overrides": [{"pool": "cpu", "replicas": 2}]}}) == ""
    assert "but spec.overrides" in patch(walled, "GpuDaskCluster", "shown", {"spec": {"suspend": True}})
    assert "but spec.overrides" in patch(walled, "GpuDaskCluster", "shown", {"metadata": {"labels": {"a": "b"}}})
    assert delete(walled, body) == ""
    with_stock_objects(walled)
    with_leftovers(walled)
    with_stock_jobs(walled)


def with_stock_objects(walled: Cluster) -> None:
    """Where the mirror is enabled: what serves a DaskCluster is made and edited, and that one is owned, no more."""
    walled.define(CRD.with_name("mirror.yaml"))
    stock = {"apiVersion": "kubernetes.dask.org/v1", "kind": "DaskCluster", "name": "served", "uid": "1"}
    body = a_manifest(a_pool(), name="served")
    assert "makes a GpuDaskCluster only" in create(walled, body)
    for wrong in ({}, {"controller": True, "name": "other"}, {"controller": True, "kind": "DaskJob"}):
        body["metadata"]["ownerReferences"] = [stock | wrong]
        assert "makes a GpuDaskCluster only" in create(walled, body)
    body["metadata"]["ownerReferences"] = [stock | {"controller": True}]
    assert create(walled, body) == ""
    assert patch(walled, "GpuDaskCluster", "served", {"spec": {"suspend": True}}) == ""
    assert "but spec.overrides" in patch(walled, "GpuDaskCluster", "served", {"metadata": {"ownerReferences": []}})

    theirs = {key: stock[key] for key in ("apiVersion", "kind")}
    theirs |= {"metadata": {"name": "served"}, "spec": {"worker": {"replicas": 1}}}
    others_create(walled, theirs)
    kind, owner = "DaskCluster", OWNER | {"name": "served"}
    owned = {"metadata": {"labels": {"gpudask.dev/cluster": "served"}, "ownerReferences": [owner]}}
    assert "writes only objects" in patch(walled, kind, "served", {"spec": {"worker": {"replicas": 5}}})
    assert "writes only objects" in patch(walled, kind, "served", owned | {"spec": {"idleTimeout": 5}})
    assert "writes only objects" in delete(walled, theirs)
    assert patch(walled, kind, "served", {"status": {"phase": "Error"}}) == ""
    assert patch(walled, kind, "served", owned) == ""
    assert patch(walled, kind, "served", {"spec": {"worker": {"replicas": 5}}}) == ""
    assert delete(walled, theirs) == ""


def with_leftovers(walled: Cluster) -> None:
    """Of what the stock operator left its finalizer goes, and what it made; others' finalizers and Deployments stay."""
    kopf, other = "kopf.zalando.org/KopfFinalizerMarker", "example.dev/kept"
    stock = {
        "apiVersion": "kubernetes.dask.org/v1",
        "kind": "DaskCluster",
        "name": "old",
        "uid": "1",
        "controller": True,
    }
    left = {"apiVersion": stock["apiVersion"], "kind": "DaskCluster", "spec": {"worker": {"replicas": 1}}}
    left["metadata"] = {"name": "old", "finalizers": [kopf, other]}
    labels = {"dask.org/cluster-name": "old"}
    group = {"apiVersion": stock["apiVersion"], "kind": "DaskWorkerGroup", "spec": {"cluster": "old"}}
    group["metadata"] = {"name": "old-default", "ownerReferences": [stock]}
    pods = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "dask", "image": "x"}]}}
    deployments = [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "labels": labels, "ownerReferences": owners},
            "spec": {"selector": {"matchLabels": labels}, "template": pods},
        }
        for name, owners in (("old-scheduler", [stock]), ("old-other", []))
    ]
    for body in (left, group, *deployments):
        others_create(walled, body)
    kind = "DaskCluster"
    assert "writes only objects" in patch(walled, kind, "old", {"metadata": {"finalizers": None}})
    assert "writes only objects" in patch(walled, kind, "old", {"metadata": {"finalizers": [kopf, other, "a.b/c"]}})
    assert patch(walled, kind, "old", {"metadata": {"finalizers": [other]}}) == ""
    assert delete(walled, deployments[0]) == ""
    assert "writes only objects" in delete(walled, deployments[1])
    assert "writes only objects" in patch(walled, "Deployment", "old-other", {"spec": {"replicas": 2}})
    ours = {"labels": {"gpudask.dev/cluster": "old"}, "ownerReferences": [OWNER | {"name": "old"}]}
    shown = {"metadata": ours, "spec": {"mirrors": "default"}}
    assert patch(walled, "DaskWorkerGroup", "old-default", shown) == ""


def with_stock_jobs(walled: Cluster) -> None:
    """Of DaskJobs those are deleted that a GpuDaskJob of their name served; and a DaskCluster that one of them made."""
    spec: dict[str, Any] = {"cluster": {}, "job": {}, "worker": {"replicas": 1}}
    job = {"apiVersion": "kubernetes.dask.org/v1", "kind": "DaskJob", "spec": spec}

    def make(kind: str, name: str, **metadata: Any) -> dict[str, Any]:
        body: dict[str, Any] = job | {"kind": kind, "metadata": {"name": name} | metadata}
        return others_create(walled, body)

    def note(made: dict[str, Any]) -> str:
        noted = {"gpudask.dev/served-by": f"{made['metadata']['uid']}/2"}
        return patch(walled, made["kind"], made["metadata"]["name"], {"metadata": {"annotations": noted}})

    server = {key: OWNER[key] for key in ("apiVersion", "uid", "controller")} | {"kind": "GpuDaskJob"}
    other_owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "flow", "uid": "3"}
    for wrong in ({}, {"ownerReferences": [server | {"name": "other"}]}, {"ownerReferences": [other_owner]}):
        theirs = make("DaskJob", "theirs", **wrong)
        assert "deletes those that this owns" in delete(walled, theirs)
        walled("delete", "daskjob", "theirs", "--namespace", TEAM)
    copied = make("DaskJob", "copied", annotations={"gpudask.dev/served-by": "another/2"})
    assert "deletes those that this owns" in delete(walled, copied)

    served = make("DaskJob", "sums")
    both = [server | {"name": "sums"}, other_owner]
    assert "of a DaskJob its status" in patch(walled, "DaskJob", "sums", {"metadata": {"ownerReferences": both}})
    assert patch(walled, "DaskJob", "sums", {"metadata": {"ownerReferences": both[:1]}}) == ""
    walled(
        "patch", "daskjob", "sums", "--namespace", TEAM, "--type=merge",
        "-p", json.dumps({"metadata": {"ownerReferences": both}}),
    )  # fmt: skip
    assert patch(walled, "DaskJob", "sums", {"metadata": {"ownerReferences": both[1:]}}) == "", "it lets go"
    assert "deletes those that this owns" in delete(walled, served)
    assert note(served) == ""
    assert delete(walled, served) == ""
    owned = make("DaskJob", "owned", ownerReferences=[server | {"name": "owned"}])
    assert delete(walled, owned) == ""

    owner = {"apiVersion": job["apiVersion"], "kind": "DaskJob", "uid": "4", "controller": True}
    ended = make("DaskCluster", "ended", ownerReferences=[owner | {"name": "ended"}])
    assert delete(walled, ended) == ""
    for wrong in ({"name": "other"}, {"name": "kept", "kind": "Job"}, {"name": "kept", "controller": False}):
        kept = make("DaskCluster", "kept", ownerReferences=[owner | wrong])
        assert "writes only objects" in delete(walled, kept)
        walled("delete", "daskcluster", "kept", "--namespace", TEAM)
    noted = make("DaskCluster", "noted", ownerReferences=[other_owner])
    size = {"spec": {"worker": {"replicas": 3}}}
    assert "writes only objects" in delete(walled, noted)
    assert "writes only objects" in patch(walled, "DaskCluster", "noted", size)
    assert note(noted) == ""
    assert patch(walled, "DaskCluster", "noted", size) == "", "it shows the size of its GpuDaskCluster"
    for more in ({"spec": {"worker": {"spec": {}}}}, {"spec": {"job": {"a": "b"}}}, {"spec": {"idleTimeout": 1}}):
        assert "writes only objects" in patch(walled, "DaskCluster", "noted", more)
    assert "writes only objects" in patch(
        walled, "DaskCluster", "noted", size | {"metadata": {"finalizers": ["a.b/c"]}}
    )
    assert delete(walled, noted) == "", "its GpuDaskCluster was deleted"


JOB_OWNER = OWNER | {"kind": "GpuDaskJob", "name": "sums"}
JOB_LABELS = {"gpudask.dev/job": "sums"}


def a_jobs_cluster(name: str = "sums", **metadata: Any) -> dict[str, Any]:
    """The cluster of the job `sums`."""
    known = {"name": name, "labels": JOB_LABELS, "ownerReferences": [JOB_OWNER]} | metadata
    return a_manifest(a_pool(replicas=1), name=name) | {"metadata": known}


def test_a_jobs_runner_and_cluster_are_made_and_deleted(walled: Cluster) -> None:
    runner = an("Pod", "sums-runner-1", owner=JOB_OWNER, labels=JOB_LABELS)
    assert create(walled, runner) == ""
    assert delete(walled, runner) == ""
    assert create(walled, a_jobs_cluster()) == ""
    sizes = {"spec": {"overrides": [{"pool": "cpu", "replicas": 0}]}}
    assert patch(walled, "GpuDaskCluster", "sums", sizes) == ""
    assert "changes nothing" in patch(walled, "GpuDaskCluster", "sums", {"spec": {"suspend": True}})
    assert delete(walled, a_jobs_cluster()) == ""


@pytest.mark.parametrize(
    "fault",
    [{"labels": {}}, {"ownerReferences": []}, {"ownerReferences": [OWNER]}, {"name": "other"}],
    ids=["no-label", "no-owner", "another-kind-of-owner", "another-name"],
)
def test_no_other_cluster_is_made(walled: Cluster, fault: dict[str, Any]) -> None:
    assert "makes a GpuDaskCluster only" in create(walled, a_jobs_cluster(**fault))


@pytest.mark.parametrize("kind", ["ConfigMap", "Service", "ServiceAccount"])
def test_a_job_owns_nothing_else(walled: Cluster, kind: str) -> None:
    body = an(kind, "sums-x", owner=JOB_OWNER, labels=JOB_LABELS)
    assert "writes only objects" in create(walled, body)


def test_only_jobs_that_ended_and_ask_for_it_are_deleted(walled: Cluster) -> None:
    spec = {
        "runner": {"template": {"spec": {"containers": [{"name": "runner", "args": ["true"]}]}}},
        "cluster": {"name": "demo"},
        "ttlAfterFinished": "1h",
    }
    head = {"apiVersion": "gpudask.dev/v1alpha1", "kind": "GpuDaskJob"}
    body = head | {"metadata": {"name": "sums"}, "spec": spec}
    assert "GpuDaskJob" in create(walled, body)
    others_create(walled, body)
    assert "has ended" in delete(walled, body)
    ended = json.dumps({"status": {"completionTime": "2026-12-01T18:00:00Z"}})
    walled("patch", "gdj", "sums", "--namespace", TEAM, "--subresource=status", "--type=merge", "-p", ended)
    assert delete(walled, body) == ""
