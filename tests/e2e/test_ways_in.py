"""From outside: by the addresses that a Service or an Ingress has, and by nothing but `KubeCluster()`.

The forwarded port, which everything else goes through, is test_kubecluster.py's.
"""

from __future__ import annotations

from gpudask.api import Json

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from distributed import Client

from gpudask import CreateMode, KubeCluster, KubeClusterError
from gpudask.kubecluster.timing import Timing
from tests.e2e.kubeconfigs import write_kubeconfig
from tests.e2e.manifests import cluster, cpu
from tests.e2e.programs import IMAGE
from tests.e2e.space import Space

# Addresses for documentation (RFC 5737): nothing has them but what kube-proxy makes of a load balancer's.
_BALANCER, _INGRESS = "198.51.100.7", "198.51.100.8"
PATIENT = Timing(outside_seconds=60.0)  # else a slow kube-proxy is a reason to forward a port


@pytest.fixture(autouse=True)
def _kubeconfig(space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The space's namespace is the context's own, as for somebody who works in it."""
    write_kubeconfig(space, tmp_path / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))


def computes(found: KubeCluster) -> None:
    with Client(found) as client:
        assert client.submit(sum, [1, 2], pure=False).result(timeout=60) == 3


def is_healthy(dashboard: str) -> bool:
    """Whether a scheduler is there: a network may have somebody who answers for every address."""
    try:
        return httpx.get(f"http://{dashboard}/health", timeout=1).text == "ok"
    except httpx.HTTPError:
        return False


@pytest.mark.local_cluster("it dials the nodes' addresses, and gives the Service one that kube-proxy alone has")
def test_a_node_port_and_a_load_balancer_are_dialled_without_a_forwarded_port(space: Space) -> None:
    words = {"image": IMAGE, "n_workers": 1, "resources": {"cpu": "100m", "memory": "512Mi"}, "quiet": True}
    options = {"scheduler_service_type": "NodePort", "create_mode": CreateMode.CREATE_ONLY}
    with KubeCluster("ported", timeout=120, timing=PATIENT, **words, **options) as found:
        ports = {each["port"]: each["nodePort"] for each in service(space, "ported")["spec"]["ports"]}
        nodes = {each["address"] for node in space.nodes() for each in node["status"]["addresses"]}
        assert found.scheduler_address in {f"tcp://{address}:{ports[8786]}" for address in nodes}
        assert found._connection.forwards == {}
        computes(found)
        assert found.dashboard_link.endswith(f":{ports[8787]}/status")
        assert httpx.get(found.dashboard_link, timeout=120).status_code == 200

        space.edit("ported", {"op": "replace", "path": "/spec/scheduler/service/type", "value": "LoadBalancer"})
        space.wait(lambda: service(space, "ported")["spec"]["type"] == "LoadBalancer", "the Service's new type")
        give_address(space, "service/ported-scheduler", _BALANCER)
        space.wait(lambda: is_healthy(f"{_BALANCER}:8787"), "the address leads to the scheduler")
        with KubeCluster.from_name("ported", quiet=True, timing=PATIENT) as balanced:
            assert balanced.scheduler_address == f"tcp://{_BALANCER}:8786"
            assert balanced._connection.forwards == {}
            computes(balanced)
            assert balanced.dashboard_link == f"http://{_BALANCER}:8787/status"
            assert httpx.get(balanced.dashboard_link, timeout=120).status_code == 200


def service(space: Space, name: str) -> Json:
    return space.find("services", f"{name}-scheduler")


def give_address(space: Space, balanced: str, address: str) -> None:
    """There is no cloud here that would give an address to a Service or an Ingress: the test does."""
    status = {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}
    space.kubectl("patch", balanced, "--subresource=status", "--type=merge", "-p", json.dumps(status))


@pytest.mark.local_cluster("it gives the Ingress an address that this machine alone has")
def test_an_ingress_is_dialled_by_a_scheduler_that_speaks_websockets(space: Space) -> None:
    """No ingress controller runs here: a load balancer's port 80 does what one would with the Ingress."""
    space.apply(cluster("webbed", cpu(), protocol="ws"))
    space.wait_ready("webbed")
    port = {"port": 80, "targetPort": "tcp-comm"}
    controller = {"type": "LoadBalancer", "selector": service(space, "webbed")["spec"]["selector"], "ports": [port]}
    space.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "controller"}, "spec": controller})
    give_address(space, "service/controller", _INGRESS)
    space.apply(ingress("webbed-scheduler"))
    give_address(space, "ingress/way-in", _INGRESS)
    space.wait(lambda: accepts(_INGRESS, 80), "the address leads to the scheduler")
    with KubeCluster.from_name("webbed", quiet=True, timing=PATIENT) as found:
        assert found.scheduler_address == f"ws://{_INGRESS}"
        assert set(found._connection.forwards) == {8787}, "the Ingress does not lead to the dashboard"
        assert httpx.get(found.dashboard_link, timeout=120).status_code == 200
        computes(found)


def ingress(backend: str) -> Json:
    """An Ingress of all paths of any host."""
    way = {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": backend, "port": {"name": "tcp-comm"}}}}
    spec = {"rules": [{"http": {"paths": [way]}}]}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "way-in"}, "spec": spec}


def accepts(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


_BARE = """
import time
from gpudask import KubeCluster

cluster = KubeCluster()
print("its name is", cluster.name, flush=True)
time.sleep(600)
"""


async def test_a_bare_cluster_says_what_it_chose_and_is_found_again_after_its_program_was_killed(space: Space) -> None:
    with started(_BARE) as program:
        assert program.stdout is not None
        said = next(line for line in program.stdout if line.startswith("created cluster"))
        name = next(line for line in program.stdout if line.startswith("its name is")).split()[-1]
        program.kill()
    namespace = space.kubectl.namespace
    assert said.strip() == (
        f"created cluster {name!r} in namespace {namespace!r}: image {IMAGE}, pools cpu (1 to 4 pods)"
    )

    with pytest.raises(KubeClusterError, match=f"cluster '{name}' exists already in namespace '{namespace}'"):
        await KubeCluster(name, image=IMAGE, create_mode=CreateMode.CREATE_ONLY, asynchronous=True, quiet=True)

    options: dict[str, Any] = {"asynchronous": True, "quiet": True, "shutdown_on_close": True}
    async with (
        KubeCluster.from_name(name, **options) as found,
        Client(found, asynchronous=True) as client,
    ):
        await found.wait_for_workers(1, pool="cpu", timeout=150)
        async with found.hold("cpu", 1, timeout=120) as workers:
            assert await client.submit(sum, [1, 2], workers=workers) == 3
    assert space.get("gdc") == [], "the one that took it over deleted it"


@contextmanager
def started(program: str) -> Iterator[subprocess.Popen[str]]:
    """A Python of its own, which does not outlive the block."""
    environment = os.environ | {"DASK_GPUDASK__IMAGE": IMAGE}
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
