"""The stock Dask client from a pod of the cluster: every documented call, and what breaks in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.docs.pages import BLOCK
from tests.e2e.manifests import OPEN_TO_NEIGHBOURS, cluster, cpu, gpu
from tests.e2e.platform import Platform
from tests.e2e.accounts import account
from tests.e2e.programs import Program
from tests.e2e.space import Space
from tests.releases.environment import STOCK, Environment

pytestmark = [
    pytest.mark.alone,  # it installs the operator with other values
    pytest.mark.local_cluster("pods mount this machine's directories"),
    pytest.mark.pod_security("privileged"),  # hostPath is of no stricter level
]

PAGE = ROOT / "docs" / "stock-client.md"
EVERYWHERE = [{"apiGroups": ["kubernetes.dask.org"], "resources": ["daskclusters"], "verbs": ["list"]}]


def documented_rights() -> list[dict[str, Any]]:
    """The rules of the Role in the page."""
    blocks = [match["text"] for match in BLOCK.finditer(PAGE.read_text()) if match["language"] == "yaml"]
    (role,) = (body for body in map(yaml.safe_load, blocks) if body.get("kind") == "Role")
    return list(role["rules"])


@pytest.fixture
def demo(space: Space, mirror: None) -> Iterator[Space]:
    """A cluster `demo` with a CPU and a GPU pool, both autoscaled, that the stock client finds."""
    limits = {"min": 0, "max": 3}
    space.apply(cluster("demo", cpu(autoscale=limits), gpu(), network=OPEN_TO_NEIGHBOURS))
    space.wait_ready("demo")
    space.wait(lambda: space.condition("demo", "Mirrored").get("status") == "True", "demo is mirrored")
    yield space
    everywhere = f"{space.kubectl.namespace}-user"
    space.kubectl("delete", f"clusterrole/{everywhere}", f"clusterrolebinding/{everywhere}")


def test_every_documented_call_and_two_breakages(demo: Space, platform: Platform) -> None:
    program = Program.start(
        demo,
        ROOT / "tests/e2e/inside/stock_client.py",
        "demo",
        user=account(demo, "user", documented_rights(), cluster_rules=EVERYWHERE),
        mounts={
            "/packages": Environment.ensure(STOCK).packages,
            "/tools/kubectl": (platform.cluster.layout.commands / "kubectl").resolve(),
        },
        environment={
            "PYTHONPATH": "/packages",
            "PATH": "/tools:/opt/dask/bin:/usr/bin:/bin",
            "DASK_KUBERNETES__NAMESPACE": demo.kubectl.namespace,
        },
    )
    program.wait_line("waiting for: scheduler-gone", seconds=180)
    for name in demo.names("demo"):
        demo.kubectl("delete", "pod", name)
    program.tell("scheduler-gone")
    program.wait_line("waiting for: operator-gone", seconds=90)
    deleted = platform.delete_operator()
    program.tell("operator-gone")
    said = program.lines(seconds=120)
    platform.await_operator(after=deleted)
    print(said)

    assert said["address"] == f"tcp://demo-scheduler.{demo.kubectl.namespace}:8786", "directly, without a port-forward"
    assert said["scale(2)"] == "2 CPU workers"
    assert said["scale(1, worker_group='gpu')"] == "1 GPU worker"
    assert said["compute"] == "3 3"
    assert said["get_logs"] == "4 {'cpu': True, 'gpu': True, 'scheduler': True}"
    assert said["adapt(minimum=1, maximum=2)"] == "1 CPU worker"
    assert said["kubectl scale"].endswith("daskworkergroup.kubernetes.dask.org/demo-gpu scaled"), said["kubectl scale"]
    assert said["kubectl scale to 0"] == "0 GPU workers"
    assert said["discover"] == "['demo']"
    assert said["dask cluster list"].startswith("0 "), said["dask cluster list"]
    assert "demo" in said["dask cluster list"]
    assert said["KubeCluster(name='another')"] == "3"
    assert said["works again after the scheduler"].startswith("yes"), said
    assert said["scale after the scheduler"] == "2 CPU workers"
    assert said["works again after the operator"].startswith("yes"), said
    assert said["scale after the operator"] == "1 CPU worker"
    assert said["close"] == "without an error"
    assert said["close with shutdown_on_close"] == "the DaskCluster is gone"
    demo.wait(lambda: not demo.get("gdc"), "the cluster is gone with its mirror")
