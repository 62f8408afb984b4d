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


def _ours() -> list[dict[str, dict[str, str]]]:
    return [body for body in yaml.safe_load_all(render.MIRROR_SOURCE.read_text()) if body]
