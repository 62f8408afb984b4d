"""A real API server accepts what the chart renders, and grants what the operator needs and no more."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.chart.conftest import REPOSITORY
from tests.conftest import CRD
from tests.eventually import eventually

if TYPE_CHECKING:
    from tests.chart.conftest import Cluster, Helm, Manifest

CHART = str(Path(__file__).resolve().parents[2] / "charts" / "gpudask")

pytestmark = pytest.mark.api

RESTRICTED = """
apiVersion: v1
kind: Namespace
metadata:
  name: {name}
  labels: {{pod-security.kubernetes.io/enforce: restricted}}
"""
NAMESPACES = ("gpudask-system", "team-a", "team-b")
DRY_RUN = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"]


@pytest.fixture(scope="module")
def ready(cluster: Cluster) -> Cluster:
    """The API server with three restricted namespaces and the resource."""
    for name in NAMESPACES:
        cluster("apply", "-f", "-", stdin=RESTRICTED.format(name=name))
    cluster.define(CRD)
    return cluster


@pytest.mark.parametrize("options", [[], ["--set", "watchNamespaces={team-a,team-b}"]], ids=["all", "listed"])
def test_the_rendered_chart_is_accepted(ready: Cluster, helm: Helm, options: list[str]) -> None:
    printed = ready(*DRY_RUN, stdin=helm.text("--include-crds", *options)).stdout
    assert "deployment.apps/gpudask created (server dry run)" in printed
    assert "customresourcedefinition.apiextensions.k8s.io/gpudaskclusters.gpudask.dev" in printed


def test_every_value_at_once_is_accepted(ready: Cluster, helm: Helm) -> None:
    values = (
        "podAnnotations.a=b,podLabels.c=d,nodeSelector.disk=ssd,tolerations[0].operator=Exists,"
        "priorityClassName=system-cluster-critical,imagePullSecrets[0].name=r,extraEnv[0].name=A,"
        "extraEnv[0].value=b,serviceAccount.annotations.a=b,topologySpreadConstraints[0].maxSkew=1,"
        "topologySpreadConstraints[0].topologyKey=zone,"
        "topologySpreadConstraints[0].whenUnsatisfiable=ScheduleAnyway,"
        "commonLabels.team=a,deploymentAnnotations.a=b,networkPolicy.create=true"
    )
    ready(*DRY_RUN, stdin=helm.text("--set", values))


@pytest.mark.parametrize("values", ["runAsUser=10001", "runAsUser=null"])
def test_the_pod_passes_the_restricted_level(ready: Cluster, helm: Helm, values: str) -> None:
    pod = _pod_of(helm.the("Deployment", "--set", values))
    ready(*DRY_RUN, stdin=yaml.safe_dump(pod))


def test_a_privileged_pod_would_not_pass(ready: Cluster, helm: Helm) -> None:
    pod = _pod_of(helm.the("Deployment"))
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    done = ready.attempt(*DRY_RUN, stdin=yaml.safe_dump(pod))
    assert 'violates PodSecurity "restricted' in done.stderr


def test_the_notes_manifest_is_a_valid_cluster(ready: Cluster, helm: Helm) -> None:
    ready("apply", "--server-side", "-f", "-", stdin=_only_crd(helm))
    ready.await_served("crd/gpudaskclusters.gpudask.dev")
    notes = helm.run("install", "gpudask", CHART, "--dry-run=client", *REPOSITORY).stdout
    manifest = notes.split("<<'YAML'\n")[1].split("  YAML\n")[0]
    ready(*DRY_RUN, "--namespace", "team-a", stdin=manifest)


def test_rights_everywhere(ready: Cluster, helm: Helm) -> None:
    ready("apply", "-f", "-", stdin=_only_rbac(helm))
    agrees = partial(_agrees, ready)
    try:
        agrees("list", "gpudaskclusters.gpudask.dev", "team-b", allowed=True)
        agrees("patch", "gpudaskclusters.gpudask.dev", "team-b", part="status", allowed=True)
        agrees("create", "pods", "team-b", allowed=True)
        agrees("patch", "secrets", "team-b", allowed=False)
        agrees("create", "secrets", "team-b", allowed=False)
        agrees("create", "events.events.k8s.io", "team-b", allowed=True)
        agrees("get", "secrets", "gpudask-system", name="gpudask-key", allowed=True)
        agrees("get", "secrets", "gpudask-system", name="another", allowed=False)
        agrees("list", "secrets", "team-b", allowed=False)
        agrees("update", "gpudaskclusters.gpudask.dev", "team-b", allowed=False)
        agrees("create", "pods", "team-b", part="exec", allowed=False)
    finally:
        ready("delete", "-f", "-", stdin=_only_rbac(helm))


def test_rights_in_listed_namespaces_end_there(ready: Cluster, helm: Helm) -> None:
    options = ["--set", "watchNamespaces={team-a}"]
    ready("apply", "-f", "-", stdin=_only_rbac(helm, *options))
    agrees = partial(_agrees, ready)
    try:
        agrees("watch", "gpudaskclusters.gpudask.dev", "team-a", allowed=True)
        agrees("create", "pods", "team-a", allowed=True)
        agrees("get", "secrets", "gpudask-system", name="gpudask-key", allowed=True)
        agrees("watch", "gpudaskclusters.gpudask.dev", "team-b", allowed=False)
        agrees("create", "pods", "team-b", allowed=False)
        agrees("create", "pods", "gpudask-system", allowed=False)
    finally:
        ready("delete", "-f", "-", stdin=_only_rbac(helm, *options))


def _agrees(ready: Cluster, *right: str, allowed: bool, **more: str) -> None:
    """Wait until the API server allows it, or not: it takes rights in one after another, and lets them go so."""
    eventually(lambda: ready.can(*right, **more) is allowed, f"{right} {more}: {allowed}")


def _pod_of(deployment: Manifest) -> Manifest:
    template = deployment["spec"]["template"]
    # No controller makes service accounts here, and an admission plugin wants one for its token.
    spec = {**template["spec"], "automountServiceAccountToken": False, "serviceAccountName": "gpudask"}
    metadata = {**template["metadata"], "name": "operator", "namespace": "gpudask-system"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _only_crd(helm: Helm) -> str:
    crds = [found for found in helm.manifests("--include-crds") if found["kind"] == "CustomResourceDefinition"]
    return yaml.safe_dump_all(crds)


def _only_rbac(helm: Helm, *options: str) -> str:
    return yaml.safe_dump_all(
        found
        for found in helm.manifests("--set", "userRoles=false", *options)
        if found["apiVersion"].startswith("rbac.") or found["kind"] == "ServiceAccount"
    )
