"""`KubeCluster` from outside, through a port-forward, and from a pod inside, with a user's rights alone."""

from __future__ import annotations

import json
import os

import pytest

from distributed import Client

from gpudask import KubeCluster
from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.space import Space

_PROGRAM = """
import gpudask
from distributed import Client

def where():
    return gpudask.has_gpu()

with gpudask.KubeCluster.from_name("inside") as cluster, Client(cluster) as client:
    cluster.scale(1, pool="gpu")
    cluster.wait_for_workers(1, pool="gpu", timeout=60)
    print("on a GPU worker:", client.submit(where, resources={"GPU": 1}, pure=False).result(timeout=60))
    print("on a CPU worker:", client.submit(where, pure=False).result(timeout=60))
"""


def test_a_program_outside_connects_and_scales_by_name(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    space.apply(cluster("outside", cpu(), gpu()))
    space.wait_ready("outside")
    monkeypatch.setitem(os.environ, "KUBECONFIG", str(space.kubectl.kubeconfig))
    with KubeCluster.from_name("outside", namespace=space.kubectl.namespace) as found, Client(found) as client:
        found.scale(2, pool="gpu")
        found.wait_for_workers(2, pool="gpu", timeout=90)
        assert client.submit(sum, [1, 2], resources={"GPU": 1}).result(timeout=30) == 3
        found.unscale(pool="gpu")
        space.wait_pods("outside", "gpu", 0)


def test_a_program_in_a_pod_connects_and_scales_with_a_users_rights(space: Space) -> None:
    space.apply(cluster("inside", cpu(), gpu()))
    space.wait_ready("inside")
    namespace = space.kubectl.namespace
    space.kubectl("create", "serviceaccount", "user")
    rules = ["--verb=get,list,watch,patch", "--resource=gpudaskclusters.gpudask.dev"]
    space.kubectl("create", "role", "user", *rules)
    space.kubectl("create", "rolebinding", "user", "--role=user", f"--serviceaccount={namespace}:user")
    container = {
        "name": "program",
        "image": "localhost/gpudask/dask:dev",
        "imagePullPolicy": "Never",
        "command": ["python", "-c", _PROGRAM],
    }
    spec = {"serviceAccountName": "user", "restartPolicy": "Never", "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "program"}, "spec": spec}
    space.apply(pod)

    def phase() -> str:
        return str(json.loads(space.kubectl("get", "pod", "program", "-o", "json").stdout)["status"].get("phase"))

    space.wait(lambda: phase() in ("Succeeded", "Failed"), "the program ends", seconds=120)
    printed = space.kubectl("logs", "program").stdout
    assert "on a GPU worker: True" in printed, printed
    assert "on a CPU worker: False" in printed, printed
    space.kubectl("delete", "pod", "program", "--grace-period=1")
