"""The way to a scheduler: an outside address of its Service where that answers, else a forwarded port."""

import asyncio
import socket
from typing import Any

import pytest
from distributed import Client, SpecCluster

from gpudask import KubeCluster, KubeClusterError
from gpudask.kubecluster.forward import route as routes
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.timing import Timing
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import be_inside


def a_service(kind: str, port: int, *, balancer: str = "") -> fake.Json:
    ports = [{"port": 8786, "nodePort": port}, {"port": 8787, "nodePort": 30002}]
    ingress = [{"ip": balancer}] if balancer else []
    return {"spec": {"type": kind, "ports": ports}, "status": {"loadBalancer": {"ingress": ingress}}}


def a_node(address: str) -> fake.Json:
    return {"metadata": {"name": "n"}, "status": {"addresses": [{"type": "InternalIP", "address": address}]}}


SOON = Timing(outside_seconds=0.5)
IN_TIME = Timing(outside_seconds=120.0)  # for a scheduler that answers, if late


def address_of(dask: SpecCluster) -> tuple[str, int]:
    host, port = dask.scheduler_address.removeprefix("tcp://").split(":")
    return host, int(port)


def answer_at(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Schedulers answer at these addresses alone."""

    async def answers(address: str, *_: object) -> bool:
        return address in addresses

    monkeypatch.setattr(routes, "answers", answers)


def speaking(protocol: str) -> fake.Json:
    body = fake.cluster("demo", "cpu")
    body["spec"]["protocol"] = protocol
    return body


def exposed(kind: str) -> fake.Json:
    body = fake.cluster("demo", "cpu")
    body["spec"]["scheduler"] = {"service": {"type": kind}}
    return body


@pytest.mark.parametrize(("protocol", "host"), [("tls", "demo-scheduler"), ("ucxx", "demo-scheduler-headless")])
def test_inside_the_protocol_decides_which_service_is_dialled(protocol: str, host: str):
    body = speaking(protocol)
    body["metadata"]["namespace"] = "ns"
    body["status"] = {}
    assert routes.inside(body).address == f"{protocol}://{host}.ns.svc:8786"


@pytest.fixture
def told() -> list[str]:
    """What the program was told, line by line."""
    return []


async def test_a_node_port_that_answers_is_dialled(server: fake.FakeServer, dask: SpecCluster, told: list[str]):
    host, port = address_of(dask)
    server.services["demo-scheduler"] = a_service("NodePort", port)
    server.nodes = [a_node("127.0.0.2"), a_node(host)]

    api = await Server.connect(None, timing=Timing(outside_seconds=10.0))  # which pass before the second is taken
    route = await routes.outside(exposed("NodePort"), api, log=told.append)

    assert route == routes.Route(f"tcp://{host}:{port}", f"http://{host}:30002/status")
    assert told == []


async def test_one_that_does_not_answer_is_not_and_that_is_said(
    server: fake.FakeServer, unused_tcp_port: int, told: list[str]
):
    api = await Server.connect(None, timing=SOON)
    server.services["demo-scheduler"] = a_service("NodePort", unused_tcp_port)
    server.nodes = [a_node("127.0.0.1")]

    assert await routes.outside(exposed("NodePort"), api, log=told.append) is None
    address = f"tcp://127.0.0.1:{unused_tcp_port}"
    assert told == [f"no scheduler answers at {address} within 0.5 s: a port is forwarded instead"]


async def test_what_takes_connections_and_says_nothing_is_no_scheduler(server: fake.FakeServer):
    api = await Server.connect(None, timing=SOON)
    server.nodes = [a_node("127.0.0.1")]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server.services["demo-scheduler"] = a_service("NodePort", silent.getsockname()[1])

        route = await asyncio.wait_for(routes.outside(exposed("NodePort"), api), 60)

    assert route is None


async def test_an_address_at_which_something_else_answers_is_not_taken(server: fake.FakeServer, told: list[str]):
    """As a proxy or a firewall does, for every address that it is asked for. Dask reads `HTTP/1.1` as a length."""

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(refuse, "127.0.0.1", 0)
    server.services["demo-scheduler"] = a_service("NodePort", listener.sockets[0].getsockname()[1])
    server.nodes = [a_node("127.0.0.1")]
    async with listener:
        assert await routes.outside(exposed("NodePort"), await Server.connect(None), log=told.append) is None
    assert "no scheduler answers at" in told[0]


async def test_a_load_balancer_that_answers_is_dialled(server: fake.FakeServer, monkeypatch: pytest.MonkeyPatch):
    answer_at(monkeypatch, "tcp://192.0.2.7:8786")
    server.services["demo-scheduler"] = a_service("LoadBalancer", 0, balancer="192.0.2.7")

    route = await routes.outside(exposed("LoadBalancer"), await Server.connect(None))

    assert route == routes.Route("tcp://192.0.2.7:8786", "http://192.0.2.7:8787/status")


async def test_a_load_balancer_without_an_address_yet_is_said(server: fake.FakeServer, told: list[str]):
    server.services["demo-scheduler"] = a_service("LoadBalancer", 0)

    assert await routes.outside(exposed("LoadBalancer"), await Server.connect(None), log=told.append) is None
    assert told == ["service demo-scheduler of type LoadBalancer has no outside address: a port is forwarded instead"]


@pytest.mark.parametrize("forbidden", ["GET demo-scheduler", "GET nodes"])
async def test_without_permission_to_look_a_port_is_forwarded_and_the_rule_is_said(
    server: fake.FakeServer, forbidden: str, told: list[str]
):
    server.services["demo-scheduler"] = a_service("NodePort", 1)
    server.forbidden.add(forbidden)

    assert await routes.outside(exposed("NodePort"), await Server.connect(None), log=told.append) is None
    assert "Role" in told[0]
    assert told[0].endswith("Until then a port is forwarded instead")


async def test_an_inner_service_is_not_even_looked_at(server: fake.FakeServer):
    api = await Server.connect(None)
    before = len(server.requests)

    assert await routes.outside(fake.cluster("demo", "cpu"), api) is None
    assert len(server.requests) == before


def test_an_address_that_answers_no_more_is_chosen_again_for_the_next_client(
    demo: fake.FakeServer, dask: SpecCluster, unused_tcp_port: int
):
    host, port = address_of(dask)
    demo.clusters["demo"]["spec"]["scheduler"] = {"service": {"type": "NodePort"}}
    demo.services["demo-scheduler"] = a_service("NodePort", port)
    demo.nodes = [a_node(host)]
    with KubeCluster.from_name("demo", quiet=True, timing=IN_TIME) as cluster:
        assert cluster.scheduler_address == f"tcp://{host}:{port}"
        # What is open stays so, but nothing new gets there: the Service is another, and no node leads to it.
        cluster.scheduler_comm.address = f"tcp://127.0.0.1:{unused_tcp_port}"
        demo.clusters["demo"]["spec"]["scheduler"] = {"service": {"type": "ClusterIP"}}
        with Client(cluster) as client:
            assert client.submit(sum, [1, 2]).result(timeout=60) == 3
            assert cluster.dashboard_link.startswith("http://127.0.0.1:")
        assert set(demo.forwards) == {"demo-scheduler-00000"}


def an_ingress(service: str, port: dict[str, Any], host: str = "dask.example") -> fake.Json:
    rule = {"host": host, "http": {"paths": [{"backend": {"service": {"name": service, "port": port}}}]}}
    balancer = {"loadBalancer": {"ingress": [{"hostname": "balancer.example"}]}}
    return {"spec": {"rules": [rule]}, "status": balancer}


@pytest.mark.parametrize(
    ("ingress", "address"),
    [
        (an_ingress("demo-scheduler", {"number": 8786}), "ws://dask.example"),
        (an_ingress("demo-scheduler", {"name": "tcp-comm"}), "ws://dask.example"),
        (an_ingress("demo-scheduler", {"number": 8786}, host=""), "ws://balancer.example"),
        (an_ingress("demo-scheduler", {"number": 8787}), None),
        (an_ingress("other-scheduler", {"number": 8786}), None),
        (an_ingress("demo-scheduler", {"number": 8786}, host="*.example"), None),
    ],
    ids=["by number", "by name", "of any host", "the dashboard's", "another's", "of many hosts"],
)
async def test_an_ingress_leads_to_a_scheduler_that_speaks_websockets(
    server: fake.FakeServer, ingress: fake.Json, address: str | None, monkeypatch: pytest.MonkeyPatch
):
    answer_at(monkeypatch, "ws://dask.example", "ws://balancer.example")
    server.ingresses = [ingress]

    route = await routes.outside(speaking("ws"), await Server.connect(None))

    assert (route.address if route else None) == address


async def test_the_dashboards_link_is_that_of_an_ingress_which_leads_there(
    server: fake.FakeServer, monkeypatch: pytest.MonkeyPatch
):
    answer_at(monkeypatch, "ws://dask.example")
    page = an_ingress("demo-scheduler", {"name": "http-dashboard"}, host="page.example")
    secured = page | {"spec": page["spec"] | {"tls": [{"hosts": ["page.example"]}]}}
    below = an_ingress("demo-scheduler", {"number": 8787}, host="below.example")
    below["spec"]["rules"][0]["http"]["paths"][0]["path"] = "/demo"

    async def link(*pages: fake.Json) -> str | None:
        server.ingresses = [an_ingress("demo-scheduler", {"number": 8786}), *pages]
        route = await routes.outside(speaking("ws"), await Server.connect(None))
        return route.dashboard if route else None

    assert await link() == ""
    assert await link(below) == "", "its pages lie at the root"
    assert await link(below, page) == "http://page.example/status"
    assert await link(secured) == "https://page.example/status"


async def test_a_dashboard_to_which_no_ingress_leads_is_forwarded_or_there_is_none(
    demo: fake.FakeServer, told: list[str], monkeypatch: pytest.MonkeyPatch
):
    answer_at(monkeypatch, "ws://dask.example")
    demo.ingresses = [an_ingress("demo-scheduler", {"number": 8786})]
    forwards: routes.Forwards = {}

    async def link() -> str:
        options = {"dashboard_port": 0, "connection_args": {}, "log": told.append}
        api = await Server.connect(None)
        route = await routes.from_outside(api, speaking("ws"), forwards, **options)
        assert route.address == "ws://dask.example"
        return route.dashboard

    assert await link() == f"http://127.0.0.1:{forwards[8787].local_port}/status"
    assert told == []
    await routes.stop(forwards)
    demo.forbidden.add("GET portforward")
    assert await link() == ""
    assert told[0].startswith("no dashboard: cannot forward port 8787")
    assert 'resources: ["pods/portforward"]' in told[0]
    await routes.stop(forwards)


async def test_an_ingress_behind_which_no_scheduler_answers_is_not_taken_and_that_is_said(
    server: fake.FakeServer, told: list[str]
):
    api = await Server.connect(None, timing=SOON)
    controller = f"127.0.0.1:{server.port}"  # it speaks HTTP, and knows no such page
    server.ingresses = [an_ingress("demo-scheduler", {"number": 8786}, host=controller)]

    assert await routes.outside(speaking("ws"), api, log=told.append) is None
    assert told == [f"no scheduler answers at ws://{controller} within 0.5 s: a port is forwarded instead"]


def test_a_cluster_whose_node_port_does_not_answer_is_used_through_a_forwarded_port(
    demo: fake.FakeServer, unused_tcp_port: int, capsys: pytest.CaptureFixture[str]
):
    demo.clusters["demo"]["spec"]["scheduler"] = {"service": {"type": "NodePort"}}
    demo.services["demo-scheduler"] = a_service("NodePort", unused_tcp_port)
    demo.nodes = [a_node("127.0.0.1")]

    with KubeCluster.from_name("demo", timing=SOON) as cluster, Client(cluster) as client:
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
    assert "a port is forwarded instead" in capsys.readouterr().out


def test_a_cluster_is_used_through_its_node_port(demo: fake.FakeServer, dask: SpecCluster):
    host, port = address_of(dask)
    demo.clusters["demo"]["spec"]["scheduler"] = {"service": {"type": "NodePort"}}
    demo.services["demo-scheduler"] = a_service("NodePort", port)
    demo.nodes = [a_node(host)]

    with KubeCluster.from_name("demo", timing=IN_TIME) as cluster, Client(cluster) as client:
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
    assert demo.forwards == []


def test_inside_a_namespace_that_is_named_needs_no_rights_at_all(
    demo: fake.FakeServer, dask: SpecCluster, monkeypatch: pytest.MonkeyPatch
):
    be_inside(demo, monkeypatch)
    monkeypatch.setattr(routes, "inside", lambda _: routes.Route(dask.scheduler_address, ""))
    demo.forbidden.add("GET demo")

    with KubeCluster.from_name("demo", namespace="lab") as cluster:
        assert len(cluster.scheduler_info["workers"]) == 2


def test_creating_needs_the_api_server_also_inside(demo: fake.FakeServer, monkeypatch: pytest.MonkeyPatch):
    be_inside(demo, monkeypatch)
    demo.forbidden.add("GET demo")

    with pytest.raises(KubeClusterError, match=r'verbs: \["get"\]'):
        KubeCluster("demo", namespace="lab")
