"""The way to a scheduler: an outside address of its Service where that answers, else a forwarded port."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from distributed import Client, SpecCluster

from gpudask import KubeCluster, KubeClusterError
from gpudask.kubecluster import routes
from gpudask.kubecluster.server import Server
from tests.kubecluster import fake_server as fake


def a_service(kind: str, port: int, *, balancer: str = "") -> fake.Json:
    ports = [{"port": 8786, "nodePort": port}, {"port": 8787, "nodePort": 30002}]
    ingress = [{"ip": balancer}] if balancer else []
    return {"spec": {"type": kind, "ports": ports}, "status": {"loadBalancer": {"ingress": ingress}}}


def a_node(address: str) -> fake.Json:
    return {"metadata": {"name": "n"}, "status": {"addresses": [{"type": "InternalIP", "address": address}]}}


def exposed(kind: str) -> fake.Json:
    body = fake.cluster("demo", "cpu")
    body["spec"]["scheduler"] = {"service": {"type": kind}}
    return body


@asynccontextmanager
async def something_listens() -> AsyncIterator[int]:
    listener = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with listener:
        yield listener.sockets[0].getsockname()[1]


async def test_a_node_port_that_answers_is_dialled(server: fake.FakeServer):
    async with something_listens() as port:
        server.services["demo-scheduler"] = a_service("NodePort", port)
        server.nodes = [a_node("127.0.0.1")]
        route = await routes.outside(exposed("NodePort"), await Server.connect(None))

    assert route == routes.Route(f"tcp://127.0.0.1:{port}", "http://127.0.0.1:30002/status")


async def test_one_that_does_not_answer_is_not(server: fake.FakeServer, unused_tcp_port: int):
    server.services["demo-scheduler"] = a_service("NodePort", unused_tcp_port)
    server.nodes = [a_node("127.0.0.1")]

    assert await routes.outside(exposed("NodePort"), await Server.connect(None)) is None


async def test_a_load_balancer_that_answers_is_dialled(server: fake.FakeServer, monkeypatch: pytest.MonkeyPatch):
    async def answers(host: str, port: int) -> bool:
        return (host, port) == ("192.0.2.7", 8786)

    monkeypatch.setattr(routes, "_answers", answers)
    server.services["demo-scheduler"] = a_service("LoadBalancer", 0, balancer="192.0.2.7")

    route = await routes.outside(exposed("LoadBalancer"), await Server.connect(None))

    assert route == routes.Route("tcp://192.0.2.7:8786", "http://192.0.2.7:8787/status")


@pytest.mark.parametrize("forbidden", ["GET demo-scheduler", "GET nodes"])
async def test_without_permission_to_look_a_port_is_forwarded(server: fake.FakeServer, forbidden: str):
    server.services["demo-scheduler"] = a_service("NodePort", 1)
    server.forbidden.add(forbidden)

    assert await routes.outside(exposed("NodePort"), await Server.connect(None)) is None


async def test_an_inner_service_is_not_even_looked_at(server: fake.FakeServer):
    api = await Server.connect(None)
    before = len(server.requests)

    assert await routes.outside(fake.cluster("demo", "cpu"), api) is None
    assert len(server.requests) == before


def an_ingress(service: str, port: dict[str, Any]) -> fake.Json:
    backend = {"service": {"name": service, "port": port}}
    return {"spec": {"rules": [{"host": "dask.example", "http": {"paths": [{"backend": backend}]}}]}}


@pytest.mark.parametrize(
    ("ingress", "address"),
    [
        (an_ingress("demo-scheduler", {"number": 8786}), "ws://dask.example"),
        (an_ingress("demo-scheduler", {"name": "tcp-comm"}), "ws://dask.example"),
        (an_ingress("demo-scheduler", {"number": 8787}), None),
        (an_ingress("other-scheduler", {"number": 8786}), None),
    ],
    ids=["by number", "by name", "the dashboard's", "another's"],
)
async def test_an_ingress_leads_to_a_scheduler_that_speaks_websockets(
    server: fake.FakeServer, ingress: fake.Json, address: str | None
):
    server.ingresses = [ingress]
    body = fake.cluster("demo", "cpu")
    body["spec"]["protocol"] = "ws"

    route = await routes.outside(body, await Server.connect(None))

    assert (route.address if route else None) == address


def test_a_cluster_is_used_through_its_node_port(demo: fake.FakeServer, dask: SpecCluster):
    host, port = dask.scheduler_address.removeprefix("tcp://").split(":")
    demo.clusters["demo"]["spec"]["scheduler"] = {"service": {"type": "NodePort"}}
    demo.services["demo-scheduler"] = a_service("NodePort", int(port))
    demo.nodes = [a_node(host)]

    with KubeCluster.from_name("demo") as cluster, Client(cluster) as client:
        assert client.submit(sum, [1, 2]).result(timeout=10) == 3
    assert demo.forwards == []


def test_inside_a_namespace_that_is_named_needs_no_rights_at_all(
    demo: fake.FakeServer, dask: SpecCluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setattr(routes, "inside", lambda _: routes.Route(dask.scheduler_address, ""))
    demo.forbidden.add("GET demo")

    with KubeCluster.from_name("demo", namespace="lab") as cluster:
        assert len(cluster.scheduler_info["workers"]) == 2


def test_creating_needs_the_api_server_also_inside(demo: fake.FakeServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    demo.forbidden.add("GET demo")

    with pytest.raises(KubeClusterError, match=r'verbs: \["get"\]'):
        KubeCluster("demo", namespace="lab")
