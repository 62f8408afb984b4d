"""docs/applying.md: which edits lose pools, and how long a refusal is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.kubectl import Kubectl

pytestmark = pytest.mark.api
MIXED = ROOT / "examples" / "mixed.yaml"
PAGE = (ROOT / "docs" / "applying.md").read_text()


@pytest.fixture
def demo(in_namespace: Kubectl) -> Kubectl:
    in_namespace("apply", "-f", str(MIXED))
    return in_namespace


def pools(kubectl: Kubectl) -> list[str]:
    return kubectl("get", "gdc", "demo", "-o", "jsonpath={.spec.pools[*].name}").stdout.split()


def test_a_merge_patch_replaces_the_list_whole(demo: Kubectl):
    demo("patch", "gdc", "demo", "--type=merge", "-p", '{"spec": {"pools": [{"name": "gpu", "replicas": 1}]}}')

    assert pools(demo) == ["gpu"]


def test_the_pages_patch_of_one_pool_leaves_the_others(demo: Kubectl):
    found = re.search(r"kubectl (patch gdc demo --type=json) -p '(.*)'\n", PAGE)
    assert found is not None
    demo(*found[1].split(), "-p", found[2])

    assert pools(demo) == ["cpu", "gpu"]
    assert demo("get", "gdc", "demo", "-o", "jsonpath={.spec.pools[0].autoscale.max}").stdout == "2"


def test_a_part_that_is_applied_by_the_server_is_refused_and_by_force_removes_the_rest(demo: Kubectl):
    part = {
        "apiVersion": "gpudask.dev/v1alpha1",
        "kind": "GpuDaskCluster",
        "metadata": {"name": "demo"},
        "spec": {"pools": [{"name": "cpu", "autoscale": {"max": 2}}]},
    }
    words = ("apply", "--server-side", "--field-manager=night-shift", "-f", "-")
    refused = demo.attempt(*words, stdin=json.dumps(part))

    assert refused.returncode != 0
    assert 'conflict with "kubectl-client-side-apply"' in refused.stderr
    assert "autoscale" in refused.stderr

    demo(*words, "--force-conflicts", stdin=json.dumps(part))
    assert pools(demo) == ["cpu"]


def test_a_misspelt_field_of_a_cluster_with_a_long_status_is_one_line_by_server_side_apply(
    demo: Kubectl, tmp_path: Path
):
    status = {"pools": [{"name": f"p{number}", "message": "x" * 300} for number in range(10)]}
    demo("patch", "gdc", "demo", "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    bad = tmp_path / "bad.yaml"
    bad.write_text(MIXED.read_text().replace("nthreads:", "nthraeds:"))
    long = demo.attempt("apply", "-f", str(bad)).stderr
    short = demo.attempt("apply", "--server-side", "--force-conflicts", "-f", str(bad)).stderr

    assert len(long) > 10_000, "Kubernetes has mended it: the page need not say so"
    assert long.rstrip().endswith('unknown field "spec.pools[0].nthraeds"')
    assert len(short) < 300
    assert '.spec.pools[name="cpu"].nthraeds: field not declared in schema' in short
