"""What is derived from elsewhere is current."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from charts import render

if TYPE_CHECKING:
    from tests.chart.conftest import Cluster, Helm

UPDATE = "is not current: run `make manifests`"


@pytest.mark.parametrize("name", render.CRDS)
def test_the_charts_crds_are_those_of_the_models(name: str) -> None:
    copy, source = render.CRD_COPIES / name, render.CRD_SOURCES / name
    assert copy.read_text() == source.read_text(), f"{copy} {UPDATE}"


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
