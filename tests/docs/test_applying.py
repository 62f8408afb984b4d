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


def test_a_json_patch_of_one_pool_leaves_the_others(demo: Kubectl):
    patch = [{"op": "replace", "path": "/spec/pools/0/autoscale/max", "value": 2}]
    demo("patch", "gdc", "demo", "--type=json", "-p", json.dumps(patch))

    assert pools(demo) == ["cpu", "gpu"]


def test_the_pages_apply_of_one_pool_leaves_the_others_and_is_refused_where_somebody_set_the_field(demo: Kubectl):
    found = re.search(r"--field-manager=(\S+) -f - <<'EOF'\n(.*?)EOF", PAGE, re.DOTALL)
    assert found is not None
    words = ("apply", "--server-side", f"--field-manager={found[1]}", "-f", "-")
    refused = demo.attempt(*words, stdin=found[2])

    assert refused.returncode != 0
    assert 'conflict with "kubectl-client-side-apply"' in refused.stderr
    assert "autoscale" in refused.stderr

    demo(*words, "--force-conflicts", stdin=found[2])
    assert pools(demo) == ["cpu", "gpu"]
    assert demo("get", "gdc", "demo", "-o", "jsonpath={.spec.pools[0].autoscale.max}").stdout == "2"


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
