"""What is derived from elsewhere is current."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from charts import render

if TYPE_CHECKING:
    from tests.chart.conftest import Cluster, Helm

UPDATE = "is not current: run `make manifests`"


def test_the_charts_crd_is_the_one_of_the_models() -> None:
    assert render.CRD_COPY.read_text() == render.CRD_SOURCE.read_text(), f"{render.CRD_COPY} {UPDATE}"


def test_the_charts_mirror_is_the_one_of_crds() -> None:
    assert render.MIRROR_COPY.read_text() == render.MIRROR_SOURCE.read_text(), f"{render.MIRROR_COPY} {UPDATE}"


def test_the_plain_manifests_are_the_charts(helm: Helm) -> None:
    assert render.TARGET.read_text() == render.rendered(helm.command), f"{render.TARGET} {UPDATE}"


@pytest.mark.api
def test_the_plain_manifests_are_applied_as_they_are(cluster: Cluster) -> None:
    applied = cluster("apply", "--server-side", "-f", str(render.TARGET)).stdout
    assert "deployment.apps/gpudask serverside-applied" in applied
    assert "error" not in applied


def test_the_plain_manifests_claim_no_helm_release() -> None:
    manifests = [found for found in yaml.safe_load_all(render.TARGET.read_text()) if found]
    labels = [manifest["metadata"].get("labels", {}) for manifest in manifests]
    assert not [found for found in labels if "helm.sh/chart" in found or "app.kubernetes.io/managed-by" in found]
    assert [manifest["kind"] for manifest in manifests][:2] == ["Namespace", "CustomResourceDefinition"]
