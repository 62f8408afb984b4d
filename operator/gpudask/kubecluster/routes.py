"""The way from this program to a scheduler: its Service inside Kubernetes, else an outside address or a forward.

An outside address is taken where a Dask scheduler answers there: a balancer may still be in the making, a firewall may
stand before a node, and an Ingress' controller answers whatever it is asked.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from distributed.comm.core import connect

from gpudask.api import addresses
from gpudask.api.stock import COMM_PORT, DASHBOARD_PORT
from gpudask.kubecluster import ingresses
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.request import FORBIDDEN, NOT_FOUND
from gpudask.kubecluster.server import Server

logger = logging.getLogger(__name__)

Json = dict[str, Any]
_NODES = 3
_INSTEAD = "a port is forwarded instead"


@dataclass(frozen=True)
class Route:
    """Where to dial: the comm's address, and the dashboard's URL, empty where that way has none."""

    address: str
    dashboard: str


def inside(body: Json) -> Route:
    """Through the Service's name, for a program in the same Kubernetes."""
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    known = body.get("status", {}).get("scheduler", {}).get("address", "")
    protocol = body["spec"].get("protocol", "tcp")
    address = known or addresses.scheduler_address(name, namespace, protocol)
    return Route(address, addresses.dashboard(name, namespace))


async def outside(
    body: Json,
    server: Server,
    *,
    connection_args: Json | None = None,
    tell: Callable[[str], object] = logger.warning,
) -> Route | None:
    """Through the Service's own outside address, where it has one that answers; None: a port has to be forwarded.

    A Service of type LoadBalancer, or NodePort (which takes permission to list nodes); with protocol ws or wss also
    an Ingress whose backend it is.

    Args:
        body: the cluster.
        server: where it is.
        connection_args: of Dask's connections, such as the TLS context.
        tell: called with why an address that there should be is not taken.

    Raises:
        KubeClusterError: the server refuses for another reason than missing rights, or cannot be reached.
    """
    protocol = body["spec"].get("protocol", "tcp")
    name = addresses.service(body["metadata"]["name"])
    kind = ((body["spec"].get("scheduler") or {}).get("service") or {}).get("type", "ClusterIP")
    found: list[Route] = []
    if protocol in {"ws", "wss"}:
        found += await _allowed(_by_ingress(server, name, protocol), tell=None)
    if kind != "ClusterIP":
        found += await _allowed(_service_routes(server, name, protocol), tell=tell)
        if not found:
            tell(f"service {name} of type {kind} has no outside address: {_INSTEAD}")
    limit_seconds = server.timing.outside_seconds
    trials = (answers(route.address, connection_args or {}, limit_seconds) for route in found)
    answering = await asyncio.gather(*trials)
    taken = next((route for route, is_there in zip(found, answering, strict=True) if is_there), None)
    if found and taken is None:
        tried = ", ".join(route.address for route in found)
        tell(f"no scheduler answers at {tried} within {limit_seconds:g} s: {_INSTEAD}")
    return taken


async def _allowed(looking: Awaitable[list[Route]], tell: Callable[[str], object] | None) -> list[Route]:
    """What is found; nothing where it may not be looked for."""
    try:
        return await looking
    except KubeClusterError as error:
        if error.status not in (FORBIDDEN, NOT_FOUND):
            raise
        if tell is not None:
            tell(f"{error}. Until then {_INSTEAD}")
        return []


async def _service_routes(server: Server, name: str, protocol: str) -> list[Route]:
    service = await server.call("get", "services", name)
    spec = service["spec"]
    own = {port["port"]: port["port"] for port in spec["ports"]}
    routes = [_route(protocol, host, own) for host in ingresses.balancers(service)]
    if spec["type"] == "NodePort":
        answer = await server.call("list", "nodes", namespace="")
        ports = {port["port"]: port["nodePort"] for port in spec["ports"]}
        routes += [_route(protocol, host, ports) for node in answer["items"][:_NODES] for host in _addresses(node)]
    return routes


def _route(protocol: str, host: str, ports: dict[int, int]) -> Route:
    bracketed = f"[{host}]" if ":" in host else host
    return Route(f"{protocol}://{bracketed}:{ports[COMM_PORT]}", f"http://{bracketed}:{ports[DASHBOARD_PORT]}/status")


def _addresses(node: Json) -> list[str]:
    """A node's addresses, those for the outside first."""
    listed = node.get("status", {}).get("addresses", [])
    return [item["address"] for kind in ("ExternalIP", "InternalIP") for item in listed if item["type"] == kind]


async def _by_ingress(server: Server, name: str, protocol: str) -> list[Route]:
    answer = await server.call("list", "ingresses", version="networking.k8s.io/v1")
    comms = ingresses.urls(answer["items"], name, COMM_PORT, "tcp-comm")
    pages = ingresses.urls(answer["items"], name, DASHBOARD_PORT, "http-dashboard", path="/")
    dashboard = next((f"{page}/status" for page in pages), "")
    return [Route(f"{protocol}://{urlsplit(comm).netloc}", dashboard) for comm in comms]


async def answers(address: str, connection_args: Json, limit_seconds: float) -> bool:
    """Whether a Dask scheduler does, within `limit_seconds`: it is greeted as Dask's own client would."""
    try:
        async with asyncio.timeout(limit_seconds):  # Dask's own limit leaves out the answer to the greeting
            comm = await connect(address, timeout=limit_seconds, **connection_args)
    except Exception as error:  # noqa: BLE001 - whoever listens there may speak anything: HTTP ends as a MemoryError
        logger.debug("nothing answers at %s: %r", address, error)
        return False
    comm.abort()
    return True
