"""A cluster from a bundle, with the operator and a Dask cluster, on a machine without network and programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.bundle.packing.pack import pack
from local.host.progress import Steps
from local.images.debian import ensure_root_file_system
from local.nodes.cgroups import remove_cgroups
from tests.e2e.bare_machine import BareMachine, bare_machine
from tests.eventually import eventually

pytestmark = [
    pytest.mark.alone,
    pytest.mark.own_cluster,
    pytest.mark.local_cluster("it makes a cluster of its own, from a bundle"),
]

_NAME = "bare"
# As a person does: the environment names a proxy, and `env` says what is not to be asked through it.
_KUBECTL = f'eval "$(python3 /bundle/start.pyz env --name {_NAME})" && exec kubectl "$@"'


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[BareMachine]:
    pack(tmp_path / "bundle", part_bytes=48 << 20, steps=Steps(), preset=0)
    with bare_machine(ensure_root_file_system(Steps()), tmp_path, tmp_path / "bundle") as machine:
        yield machine
    remove_cgroups(_NAME)  # the one thing that it shares with this machine


def test_a_bare_machine_runs_a_dask_cluster_from_a_bundle(machine: BareMachine):
    assert not [name for name in ("ip", "iptables", "etcd", "containerd", "kubectl", "go") if machine.has(name)]
    assert machine.run("ls", "/proc/sys/net/ipv4/conf").split() == ["all", "default", "lo"]

    def local(*arguments: str) -> str:
        return machine.run("python3", "/bundle/start.pyz", *arguments, "--name", _NAME)

    def kubectl(*arguments: str, stdin: str = "") -> str:
        return machine.run("sh", "-c", _KUBECTL, "kubectl", *arguments, stdin=stdin)

    local("up", "--gpus", "2")
    local("install")
    assert json.loads(local("status", "-o", "json"))["healthy"]
    template = machine.run("python3", "/bundle/start.pyz", "template")
    spec = {
        "image": "localhost/gpudask/dask-host:dev",
        "template": json.loads(template),
        "pools": [{"name": "cpu", "replicas": 1}],
    }
    manifest = {
        "apiVersion": "gpudask.dev/v1alpha1",
        "kind": "GpuDaskCluster",
        "metadata": {"name": "first"},
        "spec": spec,
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def phase() -> str:
        cluster = json.loads(kubectl("get", "gdc", "first", "-o", "json"))
        return str(cluster.get("status", {}).get("phase"))

    eventually(
        lambda: phase() == "Running",
        "the Dask cluster runs",
        show=lambda: kubectl("describe", "gdc,pods"),
        seconds=90,
    )
    local("down")
    assert machine.run("ls", "/proc/sys/net/ipv4/conf").split() == ["all", "default", "lo"]
