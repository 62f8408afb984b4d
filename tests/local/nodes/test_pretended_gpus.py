"""On an API server: pods that ask for GPUs get what dask-cuda needs to run without any, and no other pod does."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from gpudask.api import Json
from local.clusters.api_server import ApiServer
from local.control_plane.kube_api import KubeApi
from local.nodes.pretended_gpus import MOST_GPUS, NO_DRIVER, VISIBLE, apply_pretended_gpus
from tests.eventually import eventually
from tests.kubectl import Kubectl

pytestmark = pytest.mark.api


@pytest.fixture(scope="module")
def kubectl() -> Iterator[Kubectl]:
    server = ApiServer.start(f"gpus-{os.getpid()}")
    try:
        kubectl = Kubectl(str(server.kubectl), server.kubeconfig)
        control_plane = server.control_plane
        apply_pretended_gpus(KubeApi(control_plane.endpoints.server, control_plane.pki))
        eventually(lambda: bool(variables(kubectl, [container(gpus=1)])[0]), "the policy is in force")
        yield kubectl
    finally:
        server.stop()


def container(name: str = "dask", *, gpus: int = 0, **env: str) -> Json:
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    return {
        "name": name,
        "image": "none",
        "resources": limits,
        "env": [{"name": key, "value": value} for key, value in env.items()],
    }


def variables(kubectl: Kubectl, containers: list[Json]) -> list[dict[str, str]]:
    """The variables that each container of a pod has once the API server admitted it."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {"containers": containers},
    }
    done = kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(pod))
    made = json.loads(done.stdout)["spec"]["containers"]
    return [{item["name"]: item["value"] for item in one.get("env", ())} for one in made]


@pytest.mark.parametrize(
    ("gpus", "indices"), [(1, "0"), (4, "0,1,2,3"), (MOST_GPUS + 1, ",".join(map(str, range(MOST_GPUS))))]
)
def test_a_pod_is_told_how_many_gpus_it_has(kubectl: Kubectl, gpus: int, indices: str):
    assert variables(kubectl, [container(gpus=gpus, LEVEL="3")]) == [
        {"LEVEL": "3", VISIBLE: indices, NO_DRIVER: "1"},
    ]


def test_only_the_container_that_asks_for_gpus_is_told(kubectl: Kubectl):
    assert variables(kubectl, [container("side"), container(gpus=2)]) == [{}, {VISIBLE: "0,1", NO_DRIVER: "1"}]


def test_a_pod_without_gpus_stays_as_it_is(kubectl: Kubectl):
    assert variables(kubectl, [container(LEVEL="3")]) == [{"LEVEL": "3"}]


def test_a_pod_that_names_its_own_keeps_them(kubectl: Kubectl):
    assert variables(kubectl, [container(gpus=2, **{VISIBLE: "1"})]) == [{VISIBLE: "1"}]
