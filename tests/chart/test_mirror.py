"""The mirror's switch: its definitions, and the refusal where the stock Dask operator is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import dask_kubernetes
import pytest
import yaml

from charts import render
from tests.chart.conftest import REPOSITORY

if TYPE_CHECKING:
    from tests.chart.conftest import Cluster, Helm

ON = [*REPOSITORY, "--set", "mirror.enabled=true"]
STOCK = Path(dask_kubernetes.__file__).parent / "operator" / "customresources"
OPERATOR = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: dask-operator
  namespace: default
  labels: {app.kubernetes.io/name: dask-kubernetes-operator}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: operator, image: stock}]}
"""


# What charts/README.md tells a team's own administrator to install with.
TEAM = "watchNamespaces={mirrored},userRoles=false,rbac.create=false,admissionPolicy.create=false"
TEAM_MIRROR = [*ON, "--set", f"{TEAM},mirror.definitions=false"]
NAMESPACE = "mirrored"
# What the cluster role `admin` is made of, by a controller that an API server alone lacks.
ADMIN = ("system:aggregate-to-admin", "system:aggregate-to-edit", "system:aggregate-to-view")

# Values beside these, and whether the release then makes an object without a namespace, which takes an administrator.
CLUSTER_WIDE = {
    "mirror.definitions=false": False,
    "rbac.create=true": False,
    "userRoles=true": False,
    "rbac.create=true,userRoles=true": True,
    "rbac.create=true,watchNamespaces=null": True,
    "admissionPolicy.create=true": True,
    "mirror.definitions=true": True,
}
WITHOUT_NAMESPACE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


def definitions(helm: Helm, *options: str) -> list[str]:
    found = helm.manifests(*options)
    return [body["metadata"]["name"] for body in found if body["kind"] == "CustomResourceDefinition"]


def test_the_definitions_come_with_the_switch(helm: Helm) -> None:
    assert definitions(helm) == []
    assert definitions(helm, *ON) == [body["metadata"]["name"] for body in _ours()]
    assert definitions(helm, *ON, "--set", "mirror.definitions=false") == []


def test_they_outlive_the_release(helm: Helm) -> None:
    found = [body for body in helm.manifests(*ON) if body["kind"] == "CustomResourceDefinition"]
    assert {body["metadata"]["annotations"]["helm.sh/resource-policy"] for body in found} == {"keep"}


def test_the_operator_is_told(helm: Helm) -> None:
    def environment(*options: str) -> dict[str, str]:
        [container] = helm.the("Deployment", *options)["spec"]["template"]["spec"]["containers"]
        return {item["name"]: item.get("value", "") for item in container["env"]}

    assert "GPUDASK_MIRROR" not in environment()
    assert environment(*ON)["GPUDASK_MIRROR"] == "true"


@pytest.mark.api
def test_the_chart_refuses_where_the_stock_operator_runs(cluster: Cluster, helm: Helm) -> None:
    install = ["install", "gpudask", str(render.CHART), "--dry-run=server", "--kubeconfig"]
    install += [str(cluster.kubeconfig), *ON]
    done = helm.run(*install)
    assert done.returncode == 0, done.stderr

    cluster("apply", "-f", "-", stdin=OPERATOR)
    refusal = helm.run(*install).stderr
    assert "the stock Dask operator runs as Deployment dask-operator in namespace default" in refusal
    cluster("delete", "-f", "-", stdin=OPERATOR)

    cluster("apply", "--server-side", "-f", str(STOCK / "daskautoscaler.yaml"))
    refusal = helm.run(*install).stderr
    assert "daskautoscalers.kubernetes.dask.org belongs to the stock Dask operator" in refusal
    assert "set mirror.enabled=false" in refusal
    cluster("delete", "-f", str(STOCK / "daskautoscaler.yaml"))


@pytest.mark.api
def test_it_looks_for_the_stock_operator_where_it_makes_anything_cluster_wide(cluster: Cluster, helm: Helm) -> None:
    install = ["install", "gpudask", str(render.CHART), "--dry-run=server", "--kubeconfig", str(cluster.kubeconfig)]
    cluster("apply", "-f", "-", stdin=OPERATOR)
    try:
        for values, is_cluster_wide in CLUSTER_WIDE.items():
            options = [*TEAM_MIRROR, "--set", values]
            kinds = {body["kind"] for body in helm.manifests(*options)}
            assert bool(kinds & WITHOUT_NAMESPACE) is is_cluster_wide, f"{values}: {kinds}"
            done = helm.run(*install, *options)
            assert ("the stock Dask operator runs" in done.stderr) is is_cluster_wide, f"{values}: {done.stderr}"
            assert (done.returncode != 0) is is_cluster_wide, f"{values}: {done.stderr}"
    finally:
        cluster("delete", "-f", "-", stdin=OPERATOR)


@pytest.mark.api
def test_a_teams_own_administrator_installs_and_upgrades_it(cluster: Cluster, helm: Helm) -> None:
    cluster("create", "namespace", NAMESPACE)
    for role in ADMIN:
        cluster("create", "rolebinding", role, f"--clusterrole={role}", "--user=lead", "--namespace", NAMESPACE)
    as_lead = ["--namespace", NAMESPACE, "--kubeconfig", str(cluster.kubeconfig), "--kube-as-user", "lead"]
    try:
        for command in (["install", "--skip-crds"], ["upgrade"]):
            done = helm.run(*command, "gpudask", str(render.CHART), *as_lead, *TEAM_MIRROR)
            assert done.returncode == 0, done.stderr
    finally:
        helm.run("uninstall", "gpudask", "--ignore-not-found", *as_lead)


def _ours() -> list[dict[str, dict[str, str]]]:
    return [body for body in yaml.safe_load_all(render.MIRROR_SOURCE.read_text()) if body]
