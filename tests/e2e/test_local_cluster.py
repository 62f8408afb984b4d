"""The local cluster itself: `down` leaves nothing on the machine, and `up` repairs whatever has died.

Runs after all others (see conftest.py): it ends the cluster that they share. Afterwards that is up again.
"""

from __future__ import annotations

import itertools
import json
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from local.clusters.cluster import Cluster
from local.clusters.settings import Settings
from local.clusters.status import read_status
from local.host.commands import run
from local.host.process_identity import ProcessId
from local.layout import Layout
from local.nodes.containerd import PAUSE_IMAGE
from local.nodes.node_spec import GPU_TAINT
from tests.e2e.machine import Machine, kill, processes
from tests.e2e.platform import Platform
from tests.eventually import eventually
from tests.kubectl import Kubectl

pytestmark = [
    pytest.mark.alone,
    pytest.mark.ends_cluster,
    pytest.mark.local_cluster("that is what it tests"),
]

_numbers = itertools.count(1)
_NODES = Settings().nodes
SERVICE_OF_NOBODY = "10.96.0.254"
"""In the part of the range that a Service gets only where its manifest says so."""
EVERYTHING = "everything, as a reboot does"


_OURS = {"gpudask.test/of": "test-local-cluster"}
"""The label of all that these tests make: the cluster that others get has nothing of it."""


@pytest.fixture(scope="module", autouse=True)
def _cluster_for_others() -> Iterator[None]:
    yield
    Platform.up()
    kinds = "deployments,services,networkpolicies"
    (label,) = (f"{key}={value}" for key, value in _OURS.items())
    _kubectl(Cluster.up())("delete", kinds, "--selector", label)


@pytest.fixture
def before() -> Machine:
    """The machine without the cluster."""
    Cluster(Layout.of("default"), Settings()).down()
    return Machine.look()


@pytest.fixture
def cluster(before: Machine) -> Cluster:
    """A cluster that was just made."""
    return Cluster.up()


def _kubectl(cluster: Cluster) -> Kubectl:
    return Kubectl(str(cluster.kubectl), cluster.kubeconfig)


def _serve(kubectl: Kubectl, node: str, *, replicas: int = 1) -> str:
    """Start pods on `node` that answer with the node's name, behind a Service. Returns the Service's name."""
    name = f"web-{node}-{next(_numbers)}"
    page = f"echo {node} > /www/index.html; exec /busybox httpd -f -p 8080 -h /www"
    pod = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"key": GPU_TAINT["key"], "operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "web",
                "image": PAUSE_IMAGE,
                "imagePullPolicy": "Never",
                "command": ["/busybox", "sh", "-c", page],
                "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
                "volumeMounts": [{"name": "pages", "mountPath": "/www"}],
            }
        ],
        "volumes": [{"name": "pages", "emptyDir": {"medium": "Memory"}}],
    }
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": _OURS},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": _OURS},
        "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": [deployment, service]}))
    return name


def _answer(kubectl: Kubectl, service: str) -> str:
    """What the Service answers to a pod-like client, this machine; empty while it does not."""
    address = kubectl("get", "service", service, "-o", "jsonpath={.spec.clusterIP}").stdout
    try:
        with urllib.request.urlopen(f"http://{address}", timeout=2) as response:
            return str(response.read().decode().strip())
    except OSError:
        return ""


def _show(kubectl: Kubectl) -> str:
    return kubectl.attempt("get", "nodes,pods,services,endpointslices", "-A", "-o", "wide").stdout


def _assert_new_pods_are_reached(cluster: Cluster) -> None:
    kubectl = _kubectl(cluster)
    services = {node: _serve(kubectl, node) for node in _NODES}
    for node, service in services.items():
        eventually(lambda s=service, n=node: _answer(kubectl, s) == n, service, show=lambda: _show(kubectl))
    # From a pod of the one node to a pod of the other, by name: DNS, exec and the way between the nodes.
    first, last = services[_NODES[0]], services[_NODES[-1]]
    # CoreDNS may have been parted from the API server, and hear of the new Service a little later.
    asked = (
        "exec",
        f"deployment/{first}",
        "--",
        "/busybox",
        "wget",
        "-qO-",
        f"http://{last}.default.svc.cluster.local",
    )
    eventually(lambda: kubectl.attempt(*asked).stdout.strip() == _NODES[-1], "by name", show=lambda: _show(kubectl))
    # And no more where a policy lets nobody in.
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": last, "labels": _OURS},
        "spec": {"podSelector": {"matchLabels": {"app": last}}, "policyTypes": ["Ingress"]},
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(policy))
    eventually(lambda: "refused" in kubectl.attempt(*asked).stderr, "by a policy", show=lambda: _show(kubectl))


def _assert_reports_are_new(cluster: Cluster) -> None:
    """`up` has returned on the word of the kubelets that run now."""
    for node in cluster.nodes:
        kubelet = cluster.processes.find(node.spec.kubelet)
        body = cluster.api.get(f"/api/v1/nodes/{node.spec.name}")
        assert kubelet
        assert body
        (ready,) = [c for c in body["status"]["conditions"] if c["type"] == "Ready"]
        assert ready["status"] == "True"
        assert datetime.fromisoformat(ready["lastHeartbeatTime"]).timestamp() >= kubelet.started


def _assert_left_nothing(cluster: Cluster, before: Machine, ours: list[ProcessId]) -> None:
    still = [process for process in ours if process.listed]
    assert not still, "down returned before they were gone"
    assert not processes(cluster.layout)
    assert not Machine.look().more_than(before)


def test_down_leaves_nothing_on_the_machine(before: Machine, cluster: Cluster):
    _assert_new_pods_are_reached(cluster)
    _serve(_kubectl(cluster), _NODES[0], replicas=6)  # and some that are being started when the end comes
    kinds = Machine.look().more_than(before)
    assert set(kinds) == set(before.__dataclass_fields__), "a kind of which there is nothing shows nothing"
    ours = processes(cluster.layout)
    assert len(ours) > len(cluster.processes.all()), "pods' processes are among them"
    cluster.down()
    _assert_left_nothing(cluster, before, ours)


def test_down_of_a_cluster_that_died_leaves_nothing(before: Machine, cluster: Cluster):
    _assert_new_pods_are_reached(cluster)
    ours = processes(cluster.layout)
    kill(ours)
    assert Machine.look().more_than(before)
    cluster.down()
    _assert_left_nothing(cluster, before, ours)


@pytest.mark.parametrize(
    "parts",
    [
        ("kube-apiserver",),
        ("etcd",),
        ("kubelet-gpu-0",),
        ("containerd-cpu-0",),
        ("kube-proxy", "kube-scheduler", "kube-controller-manager"),
        ("kube-router",),
        (EVERYTHING,),
    ],
    ids=" ".join,
)
def test_up_repairs_a_cluster_of_which_died(parts: tuple[str, ...]):
    cluster = Cluster.up()
    kubectl = _kubectl(cluster)
    old = _serve(kubectl, _NODES[-1])
    eventually(lambda: _answer(kubectl, old) == _NODES[-1], old, show=lambda: _show(kubectl))
    if parts == (EVERYTHING,):
        kill(processes(cluster.layout))
    else:
        records = {record.name: record for record in cluster.processes.all()}
        kill([p for p in processes(cluster.layout) if p.pid in {records[part].pid for part in parts}])
    assert not read_status(cluster).healthy
    Cluster.up()
    assert read_status(cluster).healthy
    _assert_reports_are_new(cluster)
    _assert_new_pods_are_reached(cluster)
    eventually(lambda: _answer(kubectl, old) == _NODES[-1], f"{old} is back", show=lambda: _show(kubectl))
    gpus = cluster.api.get("/api/v1/nodes/gpu-0")["status"]["allocatable"]["nvidia.com/gpu"]
    assert gpus == str(cluster.settings.gpus)


def test_what_nobody_redirects_is_refused_by_the_machine_itself():
    """Else a connection in the moment before kube-proxy redirects a Service reaches somebody outside."""
    kubectl = _kubectl(Cluster.up())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((SERVICE_OF_NOBODY, 80), timeout=5)
    pod = _serve(kubectl, _NODES[0])
    kubectl("rollout", "status", f"deployment/{pod}", "--timeout=60s")
    asked = kubectl.attempt(
        "exec", f"deployment/{pod}", "--", "/busybox", "wget", "-qO-", f"http://{SERVICE_OF_NOBODY}"
    )
    assert "Connection refused" in asked.stderr, asked


def test_a_bridge_keeps_its_hardware_address_as_pods_come_and_go():
    """Else a pod that knows the old one reaches no pod of the other node any more."""
    cluster = Cluster.up()
    for node in cluster.nodes:
        before = _hardware_address(node.spec.bridge)
        with _port(node.spec.bridge, "00:00:00:00:00:02"):  # no veth has a lower one
            assert _hardware_address(node.spec.bridge) == before
        assert _hardware_address(node.spec.bridge) == before


def _hardware_address(device: str) -> str:
    return Path("/sys/class/net", device, "address").read_text().strip()


@contextmanager
def _port(bridge: str, address: str) -> Iterator[None]:
    """A device of this hardware address at a bridge."""
    run(["ip", "link", "add", "e2e-port", "address", address, "type", "veth", "peer", "name", "e2e-peer"])
    try:
        run(["ip", "link", "set", "e2e-port", "master", bridge])
        yield
    finally:
        run(["ip", "link", "delete", "e2e-port"])


def test_up_starts_nothing_where_all_is_well():
    before = Cluster.up().processes.all()
    assert Cluster.up().processes.all() == before
