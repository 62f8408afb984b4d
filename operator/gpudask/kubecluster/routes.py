"""The way from this program to a scheduler: its Service inside Kubernetes, else an outside address or a forward."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.request import FORBIDDEN, NOT_FOUND
from gpudask.kubecluster.server import Server

Json = dict[str, Any]
COMM_PORT, DASHBOARD_PORT = 8786, 8787
_ANSWER_SECONDS = 3.0


@dataclass(frozen=True)
class Route:
    """Where to dial: the comm's address, and the dashboard's URL."""

    address: str
    dashboard: str


def inside(body: Json) -> Route:
    """Through the Service's name, for a program in the same Kubernetes."""
    metadata = body["metadata"]
    host = f"{metadata['name']}-scheduler.{metadata['namespace']}.svc"
    known = body.get("status", {}).get("scheduler", {}).get("address", "")
    protocol = body["spec"].get("protocol", "tcp")
    return Route(known or f"{protocol}://{host}:{COMM_PORT}", f"http://{host}:{DASHBOARD_PORT}/status")


async def outside(body: Json, server: Server) -> Route | None:
    """Through the Service's own outside address, where it has one that answers; None: a port has to be forwarded.

    A Service of type LoadBalancer, or NodePort (which takes permission to list nodes); with protocol ws or wss also
    an Ingress whose backend it is.
    """
    protocol = body["spec"].get("protocol", "tcp")
    name = f"{body['metadata']['name']}-scheduler"
    kind = ((body["spec"].get("scheduler") or {}).get("service") or {}).get("type", "ClusterIP")
    try:
        if protocol in {"ws", "wss"} and (host := await _ingress_host(server, name)):
            return Route(f"{protocol}://{host}", f"http://{host}/status")
        if kind == "ClusterIP":
            return None
        service = await server.call("get", "services", name)
        for host, ports in await _candidates(server, service):
            if await _answers(host, ports[COMM_PORT]):
                dashboard = f"http://{host}:{ports[DASHBOARD_PORT]}/status"
                return Route(f"{protocol}://{host}:{ports[COMM_PORT]}", dashboard)
    except KubeClusterError as error:
        if error.status not in (FORBIDDEN, NOT_FOUND):
            raise
    return None


async def _candidates(server: Server, service: Json) -> list[tuple[str, dict[int, int]]]:
    spec, status = service["spec"], service.get("status", {})
    balancers = status.get("loadBalancer", {}).get("ingress") or []
    same = {port["port"]: port["port"] for port in spec["ports"]}
    found = [(item.get("ip") or item["hostname"], same) for item in balancers]
    if spec["type"] == "NodePort":
        answer = await server.call("list", "nodes", namespace="")
        ports = {port["port"]: port["nodePort"] for port in spec["ports"]}
        found += [(host, ports) for node in answer["items"][:3] for host in _addresses(node)]
    return found


def _addresses(node: Json) -> list[str]:
    """A node's addresses, those for the outside first."""
    listed = node.get("status", {}).get("addresses", [])
    return [item["address"] for kind in ("ExternalIP", "InternalIP") for item in listed if item["type"] == kind]


async def _ingress_host(server: Server, service: str) -> str:
    answer = await server.call("list", "ingresses", version="networking.k8s.io/v1")
    for ingress in answer["items"]:
        for rule in ingress["spec"].get("rules", []):
            for path in (rule.get("http") or {}).get("paths", []):
                backend = path.get("backend", {}).get("service") or {}
                port = backend.get("port", {})
                if backend.get("name") == service and COMM_PORT in (port.get("number"), _named(port)):
                    return str(rule.get("host", ""))
    return ""


def _named(port: Json) -> int | None:
    return COMM_PORT if port.get("name") == "tcp-comm" else None


async def _answers(host: str, port: int) -> bool:
    with contextlib.suppress(OSError, TimeoutError):
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), _ANSWER_SECONDS)
        writer.close()
        return True
    return False
