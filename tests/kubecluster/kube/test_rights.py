"""What a program in a pod may do with how few rights: on a real API server, with a real Dask scheduler.

The operator is played by the test: it writes into the status where the scheduler is.
"""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from distributed import Client, SpecCluster

from gpudask import KubeCluster, KubeClusterError
from tests.eventually import eventually
from tests.kubectl import Kubectl

pytestmark = pytest.mark.api
# The scheduler's workers bear this cluster's name.
MANIFEST = {
    "apiVersion": "gpudask.dev/v1alpha1",
    "kind": "GpuDaskCluster",
    "metadata": {"name": "demo"},
    "spec": {"image": "i", "pools": [{"name": "cpu"}, {"name": "gpu", "gpu": {}, "autoscale": {"max": 4}}]},
}


class Program:
    """A user who may do nothing yet, in a pod of this Kubernetes."""

    def __init__(self, kubectl: Kubectl, path: Path) -> None:
        self.kubectl = kubectl
        kubectl("create", "serviceaccount", "program")
        assert kubectl.kubeconfig is not None
        config = yaml.safe_load(kubectl.kubeconfig.read_text())
        token = kubectl("create", "token", "program").stdout.strip()
        config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
        for item in config["contexts"]:
            item["context"]["namespace"] = kubectl.namespace
        path.write_text(yaml.safe_dump(config))
        self.server = urlsplit(config["clusters"][0]["cluster"]["server"])

    def may(self, *verbs: str) -> None:
        kubectl, listed = self.kubectl, ",".join(verbs)
        kubectl("create", "role", "program", f"--verb={listed}", "--resource=gpudaskclusters.gpudask.dev")
        account = f"--serviceaccount={kubectl.namespace}:program"
        kubectl("create", "rolebinding", "program", "--role=program", account)
        question = ("auth", "can-i", verbs[-1], "gpudaskclusters.gpudask.dev", "--as")
        name = f"system:serviceaccount:{kubectl.namespace}:program"
        eventually(lambda: kubectl.attempt(*question, name).stdout.strip() == "yes", "the right is in force")

    def overrides(self) -> dict[str, dict[str, int]]:
        listed = json.loads(self.kubectl("get", "gdc", "demo", "-o", "json").stdout)["spec"].get("overrides", [])
        return {item["pool"]: {key: item[key] for key in item if key not in {"pool", "by", "until"}} for item in listed}


@pytest.fixture
def program(in_namespace: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    made = Program(in_namespace, tmp_path / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(made.server.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(made.server.port))
    return made


@pytest.fixture
def operated(program: Program, dask: SpecCluster) -> Iterator[Program]:
    """Each new cluster `demo` soon has its scheduler."""
    done = threading.Event()
    status = {"status": {"observedGeneration": 99, "scheduler": {"ready": True, "address": dask.scheduler_address}}}

    def work() -> None:
        while not done.wait(0.1):
            program.kubectl.attempt(
                "patch", "gdc", "demo", "--subresource=status", "--type=merge", "-p", json.dumps(status)
            )

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield program
    finally:
        done.set()
        thread.join()


def test_get_and_patch_are_enough_to_connect_size_hold_and_wait(operated: Program):
    operated.kubectl("apply", "-f", "-", stdin=json.dumps(MANIFEST))
    operated.may("get", "patch")

    with KubeCluster.from_name("demo", quiet=True, timeout=60) as cluster, Client(cluster) as client:
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
        cluster.wait_for_workers(1, pool="gpu", timeout=60)

        cluster.scale(2, pool="cpu")
        cluster.adapt(0, 3, pool="gpu")
        with cluster.hold("gpu", 1, timeout=120) as workers:
            assert len(workers) == 1
            assert operated.overrides() == {"cpu": {"replicas": 2}, "gpu": {"replicas": 1}}
        assert operated.overrides() == {"cpu": {"replicas": 2}, "gpu": {"min": 0, "max": 3}}
        cluster.unscale("cpu")

        cluster.add_pool("more", n_workers=1)
        cluster.remove_pool("more")
        assert "Scheduler" in cluster.get_logs(), "without rights on pods, Dask's own"
        with pytest.raises(KubeClusterError, match="1 of 2 workers of pool 'gpu' came within 3 s"):
            cluster.wait_for_workers(2, pool="gpu", timeout=3)
        cluster.suspend()
        cluster.resume(timeout=60)


def test_with_create_and_delete_it_makes_clusters_of_its_own(operated: Program):
    operated.may("get", "patch", "create", "delete")

    with KubeCluster("demo", custom_cluster_spec=MANIFEST, quiet=True, timeout=60) as cluster:
        cluster.wait_for_workers(1, pool="cpu", timeout=60)
        cluster.scale(2, pool="gpu")

    assert operated.kubectl("get", "gdc", "-o", "name").stdout == ""


def test_without_any_right_the_rule_that_is_missing_is_named(program: Program):
    with pytest.raises(KubeClusterError, match=r'resources: \["gpudaskclusters"\], verbs: \["get"\]') as raised:
        KubeCluster("demo", namespace=program.kubectl.namespace, quiet=True)

    assert raised.value.status == 403


def test_get_alone_connects_and_names_what_sizes_need(operated: Program):
    operated.kubectl("apply", "-f", "-", stdin=json.dumps(MANIFEST))
    operated.may("get")

    with (
        KubeCluster.from_name("demo", quiet=True, timeout=60) as cluster,
        pytest.raises(KubeClusterError, match=r'resources: \["gpudaskclusters"\], verbs: \["patch"\]'),
    ):
        cluster.scale(2, pool="cpu")
