"""Upgrades and removal as charts/README.md has them, by Helm on an API server: the definition, and what stays."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from charts import render
from tests.chart.conftest import REPOSITORY

if TYPE_CHECKING:
    from tests.chart.conftest import Cluster, Helm

pytestmark = pytest.mark.api
NAMESPACE = "upgrades"
CRD = "crd/gpudaskclusters.gpudask.dev"
KEY = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "gpudask-key", "namespace": NAMESPACE},
    "stringData": {"key": "as the operator makes it"},
}
_FIELD = "{.spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.suspend.type}"


def older_chart(directory: Path) -> Path:
    """The chart of a version whose clusters could not be suspended."""
    chart = Path(shutil.copytree(render.CHART, directory / "gpudask"))
    file = chart / "crds" / render.CRDS[0]
    body = yaml.safe_load(file.read_text())
    spec = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["suspend"]
    file.write_text(yaml.safe_dump(body))
    return chart


def test_the_definition_is_upgraded_by_force_and_a_removal_leaves_it_the_clusters_and_the_key(
    cluster: Cluster, helm: Helm, tmp_path: Path
) -> None:
    release = ("--namespace", NAMESPACE, "--kubeconfig", str(cluster.kubeconfig))
    install = helm.run("install", "gpudask", str(older_chart(tmp_path)), "--create-namespace", *release, *REPOSITORY)
    assert install.returncode == 0, install.stderr
    assert cluster("get", CRD, "-o", f"jsonpath={_FIELD}").stdout == "", "the older one is there"
    cluster("apply", "-f", "-", stdin=yaml.safe_dump(KEY))

    upgrade = helm.run("upgrade", "gpudask", str(render.CHART), *release, *REPOSITORY)
    assert upgrade.returncode == 0, upgrade.stderr
    assert cluster("get", CRD, "-o", f"jsonpath={_FIELD}").stdout == "", "Helm leaves it as it is"
    crds = str(render.CHART / "crds")
    assert "conflict" in cluster.attempt("apply", "--server-side", "-f", crds).stderr, "its fields are Helm's"
    cluster("apply", "--server-side", "--force-conflicts", "-f", crds)
    assert cluster("get", CRD, "-o", f"jsonpath={_FIELD}").stdout == "boolean"

    made = {"apiVersion": "gpudask.dev/v1alpha1", "kind": "GpuDaskCluster", "metadata": {"name": "kept"}}
    made["spec"] = {"image": "i", "pools": [{"name": "cpu"}]}
    cluster.await_served(CRD)
    cluster("apply", "-n", NAMESPACE, "-f", "-", stdin=yaml.safe_dump(made))
    uninstall = helm.run("uninstall", "gpudask", *release)
    assert uninstall.returncode == 0, uninstall.stderr
    left = cluster("get", "secret/gpudask-key", "gdc/kept", "-n", NAMESPACE, "-o", "name").stdout.split()
    assert left == ["secret/gpudask-key", "gpudaskcluster.gpudask.dev/kept"]
    assert "not found" in cluster.attempt("get", "deployment/gpudask", "-n", NAMESPACE).stderr
