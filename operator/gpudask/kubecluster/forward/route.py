"""The way from this program to a scheduler: its Service inside Kubernetes, else an outside address or a forward.

An outside address is taken where a Dask scheduler answers there: a balancer may still be in the making, a firewall may
stand before a node, and an Ingress' controller answers whatever it is asked.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import dask.config
from dask.utils import parse_timedelta
from distributed.comm.core import connect

from gpudask.api import Json, addresses
from gpudask.api.addresses import COMM_PORT, DASHBOARD_PORT, UCXX
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.forward.port_forward import PortForward
from gpudask.kubecluster.kube.request import FORBIDDEN, NOT_FOUND
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.timing import Timing

logger = logging.getLogger(__name__)

_NODES = 3
Forwards = dict[int, PortForward]  # by the pod's port
_TRIES = 3
_INSTEAD = "a port is forwarded instead"


@dataclass(frozen=True)
class Route:
    """A way to the scheduler: the comm's address, and the dashboard's URL, empty where that way has none."""

    address: str
    dashboard: str


def browser_link(dashboard: str) -> str:
    """The dashboard's URL for a browser, as Dask's configuration `distributed.dashboard.link` says.

    On JupyterHub that is a path such as `/user/ada/proxy/{port}/status`: the browser is on another machine. An Ingress'
    URL, which names no port, stays as it is, and so does any where the template names what there is not.
    """
    url = urlsplit(dashboard)
    template = dask.config.get("distributed.dashboard.link", "") or ""
    if not url.port or not template:
        return dashboard
    try:
        link = template.format(**{**os.environ, "scheme": url.scheme, "host": url.hostname, "port": url.port})
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        logger.warning("distributed.dashboard.link=%r of Dask's configuration is not used: %r", template, error)
        return dashboard
    return str(link)


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
    log: Callable[[str], object] = logger.warning,
) -> Route | None:
    """Through the Service's own outside address, where it has one that answers; None: a port has to be forwarded.

    A Service of type LoadBalancer, or NodePort (which takes permission to list nodes); with protocol ws or wss also
    an Ingress whose backend it is.

    Args:
        body: the cluster.
        server: where it is.
        connection_args: of Dask's connections, such as the TLS context.
        log: called with why an address that there should be is not taken.

    Raises:
        KubeClusterError: the server refuses for another reason than missing rights, or cannot be reached.
    """
    protocol = body["spec"].get("protocol", "tcp")
    name = addresses.service(body["metadata"]["name"])
    kind = ((body["spec"].get("scheduler") or {}).get("service") or {}).get("type", "ClusterIP")
    found: list[Route] = []
    if protocol in {"ws", "wss"}:
        found += await _allowed(_by_ingress(server, name, protocol), log=None)
    if kind != "ClusterIP":
        found += await _allowed(_service_routes(server, name, protocol), log=log)
        if not found:
            log(f"service {name} of type {kind} has no outside address: {_INSTEAD}")
    limit_seconds = server.timing.outside_seconds
    trials = (answers(route.address, connection_args or {}, limit_seconds) for route in found)
    answering = await asyncio.gather(*trials)
    taken = next((route for route, is_there in zip(found, answering, strict=True) if is_there), None)
    if found and taken is None:
        tried = ", ".join(route.address for route in found)
        log(f"no scheduler answers at {tried} within {limit_seconds:g} s: {_INSTEAD}")
    return taken


async def _allowed(looking: Awaitable[list[Route]], log: Callable[[str], object] | None) -> list[Route]:
    """The routes that are found; none where the right to look for them is missing."""
    try:
        return await looking
    except KubeClusterError as error:
        if error.status not in (FORBIDDEN, NOT_FOUND):
            raise
        if log is not None:
            log(f"{error}. Until then {_INSTEAD}")
        return []


async def _service_routes(server: Server, name: str, protocol: str) -> list[Route]:
    service = await server.call("get", "services", name)
    spec = service["spec"]
    own = {port["port"]: port["port"] for port in spec["ports"]}
    routes = [_route(protocol, host, own) for host in _balancers(service)]
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
    comms = ingress_urls(answer["items"], name, COMM_PORT, "tcp-comm")
    pages = ingress_urls(answer["items"], name, DASHBOARD_PORT, "http-dashboard", path="/")
    dashboard = next((f"{page}/status" for page in pages), "")
    return [Route(f"{protocol}://{urlsplit(comm).netloc}", dashboard) for comm in comms]


async def answers(address: str, connection_args: Json, limit_seconds: float) -> bool:
    """True if a Dask scheduler answers within `limit_seconds` to the handshake of Dask's own client."""
    try:
        async with asyncio.timeout(limit_seconds):  # Dask's own limit leaves out the answer to the greeting
            comm = await connect(address, timeout=limit_seconds, **connection_args)
    except Exception as error:  # noqa: BLE001 - whoever listens there may speak anything: HTTP ends as a MemoryError
        logger.debug("nothing answers at %s: %r", address, error)
        return False
    comm.abort()
    return True


async def from_outside(
    server: Server,
    body: Json,
    forwards: Forwards,
    *,
    dashboard_port: int,
    connection_args: Json,
    log: Callable[[str], object],
) -> Route:
    """The way by the outside address that answers, else through ports of this machine, which listen until `stop`.

    Args:
        server: where the cluster is.
        body: the cluster.
        forwards: takes what listens, also where this fails. The dashboard's that is there already serves on.
        dashboard_port: this machine's, for a dashboard that has to be forwarded; 0: any that is free.
        connection_args: of Dask's connections, such as the TLS context.
        log: called with why an address that there should be is not taken, and why there is no dashboard.

    Raises:
        KubeClusterError: as `forwarded`.
    """
    found = await outside(body, server, connection_args=connection_args, log=log)
    if found is None:
        return await forwarded(server, body, forwards, dashboard_port=dashboard_port)
    if found.dashboard:
        return found
    try:
        await _forward_dashboard(server, body, forwards, dashboard_port)
    except KubeClusterError as error:
        log(f"no dashboard: {error}")
        return found
    return replace(found, dashboard=_status_page(forwards))


async def forwarded(server: Server, body: Json, forwards: Forwards, *, dashboard_port: int) -> Route:
    """The way through ports of this machine, which listen until `stop`.

    Args:
        server: through which they are forwarded.
        body: the cluster.
        forwards: takes what listens, also where this fails.
        dashboard_port: this machine's, for the dashboard; 0: any that is free.

    Raises:
        KubeClusterError: the protocol cannot be forwarded, the server refuses, or the port is taken.
    """
    name, uid, protocol = body["metadata"]["name"], body["metadata"]["uid"], body["spec"].get("protocol", "tcp")
    if protocol == UCXX:
        raise KubeClusterError(
            f"cluster {name!r} speaks ucxx",
            reason="that protocol cannot go through a forwarded port",
            next_step="Run the program inside the cluster, or set spec.protocol: tcp",
        )
    forwards[COMM_PORT] = PortForward(
        server, name, COMM_PORT, uid=uid, limit_seconds=_limit_seconds(server.timing), expects_handshake=True
    )
    # Both end before either's error is raised, so that `stop` finds all that listens.
    both = forwards[COMM_PORT].start(), _forward_dashboard(server, body, forwards, dashboard_port, check=False)
    made = await asyncio.gather(*both, return_exceptions=True)
    if failed := [each for each in made if isinstance(each, BaseException)]:
        raise failed[0]
    return Route(f"{protocol}://127.0.0.1:{forwards[COMM_PORT].local_port}", _status_page(forwards))


async def _forward_dashboard(
    server: Server, body: Json, forwards: Forwards, local_port: int, *, check: bool = True
) -> None:
    if DASHBOARD_PORT not in forwards:
        name, uid = body["metadata"]["name"], body["metadata"]["uid"]
        forwards[DASHBOARD_PORT] = PortForward(server, name, DASHBOARD_PORT, local_port, uid=uid, serves_http=True)
        await forwards[DASHBOARD_PORT].start(check=check)


async def stop(forwards: Forwards) -> None:
    """Stop listening, and cut what is open: all of it, also where this is cancelled meanwhile."""
    if forwards:
        _, forward = forwards.popitem()
        try:
            await forward.stop()
        finally:
            await stop(forwards)


def give_up_seconds() -> float:
    """Seconds for which Dask's clients look for a scheduler that is away before they close for good."""
    return float(parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"), default="s"))


def _limit_seconds(timing: Timing) -> float:
    """Seconds in which a client tries several times before it gives up, and that a busy scheduler can answer."""
    given = timing.forward_scheduler_seconds
    return max(timing.forward_least_seconds, give_up_seconds() / _TRIES) if given is None else given


def _status_page(forwards: Forwards) -> str:
    return f"http://127.0.0.1:{forwards[DASHBOARD_PORT].local_port}/status"


def ingress_urls(ingresses: list[Json], service: str, number: int, name: str, *, path: str | None = None) -> list[str]:
    """The URLs, such as `https://dask.example`, that lead to one port of a Service, each once.

    Args:
        ingresses: the objects.
        service: the Service's name.
        number: of the port.
        name: of the same port.
        path: only what leads there from this very path; from any path where it is None.
    """
    found: dict[str, None] = {}
    for ingress in ingresses:
        for rule in ingress["spec"].get("rules") or []:
            if _leads_to(rule, service, {number, name}, path):
                host = rule.get("host", "")
                hosts = [host] if host else _balancers(ingress)
                scheme = "https" if host in _secured(ingress) else "http"
                found |= dict.fromkeys(f"{scheme}://{each}" for each in hosts if not each.startswith("*"))
    return list(found)


def _balancers(item: Json) -> list[str]:
    """The addresses that a load balancer gave a Service or an Ingress."""
    listed = item.get("status", {}).get("loadBalancer", {}).get("ingress") or []
    return [address for entry in listed if (address := entry.get("ip") or entry.get("hostname"))]


def _leads_to(rule: Json, service: str, ports: set[int | str], path: str | None) -> bool:
    for item in (rule.get("http") or {}).get("paths", []):
        backend = item.get("backend", {}).get("service") or {}
        port = backend.get("port", {})
        is_meant = path in (None, item.get("path") or "/")
        if is_meant and backend.get("name") == service and {port.get("number"), port.get("name")} & ports:
            return True
    return False


def _secured(ingress: Json) -> set[str]:
    """The hosts for which it has a certificate."""
    return {host for entry in ingress["spec"].get("tls") or [] for host in entry.get("hosts") or []}
