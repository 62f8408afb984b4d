"""Where Ingresses lead to a Service's ports. Pure: the objects in, URLs out."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def urls(ingresses: list[Json], service: str, number: int, name: str, *, path: str | None = None) -> list[str]:
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
                hosts = [host] if host else balancers(ingress)
                scheme = "https" if host in _secured(ingress) else "http"
                found |= dict.fromkeys(f"{scheme}://{each}" for each in hosts if not each.startswith("*"))
    return list(found)


def balancers(item: Json) -> list[str]:
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
