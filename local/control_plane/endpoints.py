"""Addresses and ports of an API server and its etcd: chosen once for each cluster, then kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from local.host.ports import free_ports, is_free
from local.layout import Layout


@dataclass(frozen=True)
class Endpoints:
    """Addresses and ports. etcd is for this machine only."""

    address: str
    port: int
    etcd_port: int
    etcd_peer_port: int

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://{self.address}:{self.port}"


def recorded_endpoints(layout: Layout, address: str, usual: Sequence[int] = ()) -> Endpoints:
    """Read a cluster's endpoints, or choose them: the `usual` ports where they are free.

    A repaired cluster keeps its ports, so that kubeconfigs handed out stay good.
    """
    path = layout.root / "endpoints.json"
    if path.exists():
        return Endpoints(**json.loads(path.read_text()))
    ports = usual if usual and all(is_free(port, address) for port in usual) else free_ports(3)
    endpoints = Endpoints(address, *ports)
    path.write_text(json.dumps(asdict(endpoints)))
    return endpoints
