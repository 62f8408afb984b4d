"""Defaults: what is applied twice is unchanged, and what is left out means what it did before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from gpudask.api import Json, crd
from gpudask.api.spec import Spec
from tests.kubectl import Kubectl

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(
    path
    for path in (ROOT / "examples").glob("*.yaml")
    if [body for body in yaml.safe_load_all(path.read_text()) if (body or {}).get("kind") == "GpuDaskCluster"]
)
# Published: docs/adr/0010. The API server stored these before the operator filled them in.
PUBLISHED = {
    "pools[].autoscale.min": 0,
    "pools[].autoscale.idleTimeout": "60s",
    "pools[].autoscale.targetDuration": "30s",
    "pools[].autoscale.lookAhead": True,
    "pools[].gpu.count": 1,
    "pools[].gpu.resourceName": "nvidia.com/gpu",
    "pools[].gpu.launcher": "dask-cuda",
    "pools[].fallback.after": "240s",
    "overrides[].by": "",
}


def defaults(schema: Json, path: str = "") -> Json:
    found = {path: schema["default"]} if "default" in schema else {}
    for name, child in schema.get("properties", {}).items():
        found |= defaults(child, f"{path}.{name}".removeprefix("."))
    return found | (defaults(schema["items"], f"{path}[]") if isinstance(schema.get("items"), dict) else {})


def test_the_api_server_fills_in_nothing_inside_of_lists():
    version = crd.render()["spec"]["versions"][0]
    filled = defaults(version["schema"]["openAPIV3Schema"]["properties"]["spec"])

    assert filled == {
        "protocol": "tcp", "rollout": "WhenIdle", "suspend": False, "scheduler.service.type": "ClusterIP",
        "history.performanceReport": False,
    }  # fmt: skip


def test_the_defaults_that_were_published_are_the_models():
    model = crd.structural(Spec.model_json_schema(by_alias=True))

    assert {path: value for path, value in defaults(model).items() if "[]" in path} == PUBLISHED


def test_a_manifest_means_what_it_did_with_the_defaults_written_out():
    pool = {"name": "gpu", "autoscale": {"max": 4}, "gpu": {}, "fallback": {"to": ["cpu"]}}
    full = {
        "name": "gpu",
        "autoscale": {"max": 4, "min": 0, "idleTimeout": "60s", "targetDuration": "30s", "lookAhead": True},
        "gpu": {"count": 1, "resourceName": "nvidia.com/gpu", "launcher": "dask-cuda"},
        "fallback": {"to": ["cpu"], "after": "240s"},
    }
    short, long = (
        Spec.model_validate({"image": "i", "pools": [{"name": "cpu", "replicas": 1}, item]}) for item in (pool, full)
    )

    assert short == long


@pytest.mark.api
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_same_file_applied_again_is_unchanged(in_namespace: Kubectl, path: Path):
    in_namespace("apply", "-f", str(path))
    said = in_namespace("apply", "-f", str(path)).stdout.splitlines()

    assert said
    assert [line for line in said if not line.endswith(" unchanged")] == []


@pytest.mark.api
@pytest.mark.parametrize(
    ("pool", "said"),
    [
        ({"autoscale": {"max": 2, "min": 3}}, "min is larger than max"),
        ({"autoscale": {"max": 2, "targetDuration": "0s"}}, "the queue cannot clear in no time"),
        ({"gpu": {"resourceName": "nvidia"}}, "a device plugin's resource has a domain and a name"),
        ({"gpu": {"resourceName": "a.b/c"}, "resources": {"a.b/c": 1}}, "gpu"),
        ({"gpu": {}, "resources": {"nvidia.com/gpu": 1}}, "gpu"),
    ],
)
def test_the_rules_hold_with_and_without_what_has_a_default(in_namespace: Kubectl, pool: Json, said: str):
    body = {"apiVersion": "gpudask.dev/v1alpha1", "kind": "GpuDaskCluster", "metadata": {"name": "demo"}}
    plain = {key: {} if key == "gpu" else {"max": 2} for key in pool if key in ("gpu", "autoscale")}
    text = json.dumps(body | {"spec": {"image": "i", "pools": [{"name": "p", **pool}]}})
    refused = in_namespace.attempt("create", "--dry-run=server", "-f", "-", stdin=text)

    assert refused.returncode != 0
    assert said in refused.stderr
    good = json.dumps(body | {"spec": {"image": "i", "pools": [{"name": "p", **plain}]}})
    in_namespace("create", "--dry-run=server", "-f", "-", stdin=good)
