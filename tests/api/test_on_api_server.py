"""The CRD on a real API server: what it accepts, fills in, shows and keeps apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpudask.api.resource import parse
from tests.api.refusals import PARSERS
from tests.builders import a_manifest, a_pool
from tests.kubectl import Kubectl

pytestmark = pytest.mark.api

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.yaml"))

EVERYTHING = a_manifest(
    a_pool(
        "cpu",
        autoscale={"min": 1, "max": 20, "idleTimeout": "1h30m", "targetDuration": "500ms", "lookAhead": False},
        resources={"cpu": "0.5", "memory": "1.5Gi", "ephemeral-storage": 10**10, "rdma/hca": 1},
        nthreads=2,
        extraArgs=["--lifetime", "1h"],
        heldData={"releaseAfter": "30m"},
        drainTimeout="2h",
        recycle={"afterTasks": 10000},
        shmSize="1Gi",
        image="registry.example/dask-cpu:1",
        protocol="ucxx",
    ),
    a_pool(
        "gpu",
        replicas=0,
        gpu={"count": 4, "resourceName": "nvidia.com/mig-1g.10gb", "nodeSelector": {"a": "b"}, "launcher": "dask"},
        accepts="annotated",
        offers={"GPU": 4, "VRAM": "40G"},
        fallback={"to": ["cpu"], "after": "4m"},
        template={"metadata": {"labels": {"a": "b"}}, "spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}},
    ),
    imagePullPolicy="IfNotPresent",
    imagePullSecrets=[{"name": "registry"}],
    env=[{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
    config={"distributed": {"scheduler": {"worker-ttl": "5 minutes"}}},
    protocol="ucxx",
    scheduler={"resources": {"cpu": 1}, "extraArgs": ["--idle-timeout", "1h"], "service": {"type": "NodePort"}},
    network={
        "allowFrom": [
            {"podSelector": {"matchLabels": {"app": "hub"}}},
            {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]}},
            {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
        ]
    },
    rollout="Drain",
    suspend=True,
    history={"performanceReport": True, "keep": "48h"},
    idle={"frozenFor": "2h", "deleteAfter": "8h", "shutdownAfterDisconnect": "10m"},
    overrides=[{"pool": "gpu", "replicas": 4, "by": "alice", "until": "2026-12-01T18:00:00Z"}],
)


def create(kubectl: Kubectl, manifest: dict[str, Any] | str) -> dict[str, Any]:
    """Create what a user wrote, strictly; returns what was stored."""
    text = manifest if isinstance(manifest, str) else yaml.safe_dump(manifest)
    made = kubectl("create", "--validate=strict", "-o", "json", "-f", "-", stdin=text)
    return json.loads(made.stdout)


def stored(kubectl: Kubectl) -> dict[str, Any]:
    return json.loads(kubectl("get", "gdc", "demo", "-o", "json").stdout)


def test_the_smallest_manifest_is_accepted_and_gets_its_defaults_but_in_lists(in_namespace: Kubectl):
    body = create(in_namespace, a_manifest(a_pool("gpu", gpu={}, autoscale={"max": 2})))
    assert (body["spec"]["protocol"], body["spec"]["rollout"], body["spec"]["suspend"]) == ("tcp", "WhenIdle", False)
    assert body["spec"]["pools"] == [{"name": "gpu", "gpu": {}, "autoscale": {"max": 2}}]

    (pool,) = parse(body).spec.pools
    assert pool.gpu is not None
    assert (pool.gpu.count, pool.gpu.resource_name, pool.gpu.launcher) == (1, "nvidia.com/gpu", "dask-cuda")
    assert pool.autoscale is not None
    assert (pool.autoscale.min, pool.autoscale.idle_timeout, pool.autoscale.target_duration) == (0, "60s", "30s")
    assert pool.autoscale.look_ahead


def test_a_manifest_with_every_field_is_accepted_and_read_as_it_was_written(in_namespace: Kubectl):
    body = create(in_namespace, EVERYTHING)
    assert parse(body).spec == parse({**EVERYTHING, "metadata": body["metadata"]}).spec


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_accepted(in_namespace: Kubectl, example: Path):
    body = create(in_namespace, example.read_text())
    PARSERS[body["kind"]](body)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("200e9", 2e11),
        ("2e+11", 2e11),
        ("4", 4),
        ('"0.5"', 0.5),
        ("16Gi", 2**34),
        ("200G", 2e11),
        ("0", 0),
        ("1500m", 1.5),
    ],
)
def test_quantities_as_numbers_and_strings(in_namespace: Kubectl, written: str, value: float):
    text = yaml.safe_dump(a_manifest(a_pool(offers={"X": "HERE"}))).replace("HERE", written)
    (pool,) = parse(create(in_namespace, text)).spec.pools
    assert pool.offered_resources == {"X": value}


def test_the_columns_tell_the_state_at_a_glance(in_namespace: Kubectl):
    create(in_namespace, a_manifest())
    status = {
        "phase": "Running",
        "reason": "AllReady",
        "summary": {"cpu": "3/4", "gpu": "0/2", "worked": "63%"},
        "scheduler": {"address": "tcp://demo-scheduler:8786"},
    }
    in_namespace("patch", "gdc", "demo", "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    head, row = in_namespace("get", "gdc").stdout.splitlines()
    assert head.split() == ["NAME", "PHASE", "CPU", "GPU", "AGE"]
    assert row.split()[:4] == ["demo", "Running", "3/4", "0/2"]
    head, row = in_namespace("get", "gpudaskclusters", "-o", "wide").stdout.splitlines()
    assert head.split() == ["NAME", "PHASE", "CPU", "GPU", "AGE", "ADDRESS", "WORKED", "REASON"]
    assert row.split()[-3:] == ["tcp://demo-scheduler:8786", "63%", "AllReady"]
    assert "demo" in in_namespace("get", "dask").stdout


def test_status_is_written_only_through_its_subresource(in_namespace: Kubectl):
    before = create(in_namespace, {**a_manifest(), "status": {"phase": "Forged"}})
    assert "status" not in before
    patch = json.dumps({"status": {"phase": "Running"}, "spec": {"suspend": True}})
    in_namespace("patch", "gdc", "demo", "--subresource=status", "--type=merge", "-p", patch)
    after = stored(in_namespace)
    assert after["status"]["phase"] == "Running"
    assert after["spec"]["suspend"] is False
    assert after["metadata"]["generation"] == before["metadata"]["generation"]


def test_an_override_of_another_owner_leaves_the_pools_alone(in_namespace: Kubectl):
    apply = ("apply", "--server-side", "-f", "-", "--field-manager")
    in_namespace(*apply, "git", stdin=yaml.safe_dump(a_manifest(a_pool(replicas=1))))
    theirs = a_manifest() | {"spec": {"overrides": [{"pool": "cpu", "replicas": 3, "by": "alice"}]}}
    in_namespace(*apply, "gpudask-scale", stdin=yaml.safe_dump(theirs))
    in_namespace(*apply, "git", stdin=yaml.safe_dump(a_manifest(a_pool(replicas=2))))
    spec = stored(in_namespace)["spec"]
    assert [override["replicas"] for override in spec["overrides"]] == [3]
    assert [pool["replicas"] for pool in spec["pools"]] == [2]


def test_the_fields_are_explained_in_a_terminal(with_crd: Kubectl):
    explained = with_crd("explain", "gdc.spec.pools").stdout
    assert "threads of each worker; by default" in " ".join(explained.split())
