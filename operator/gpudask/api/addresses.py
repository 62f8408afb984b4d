"""The addresses of a scheduler inside Kubernetes: its ports, and the names of the Services that lead to it.

Operator and client agree on them here.
"""

from __future__ import annotations

COMM_PORT, DASHBOARD_PORT = 8786, 8787
UCXX = "ucxx"
UCXX_PORT = 8788  # of a scheduler that speaks tcp, for pools that speak ucxx


def service(cluster: str) -> str:
    """The scheduler's Service."""
    return f"{cluster}-scheduler"


def headless_service(cluster: str) -> str:
    """The Service whose name is the scheduler pod's own address; there is one where the protocol needs it."""
    return f"{service(cluster)}-headless"


def needs_headless(protocol: str) -> bool:
    """True if peers have to dial the pod itself.

    A Service with an address of its own translates addresses on the way, and UCX tells its peers the ones before:
    such connections hang, some always and some never (openucx/ucx issue 9526; seen with UCX 1.21).
    """
    return protocol == UCXX


def scheduler_host(cluster: str, namespace: str) -> str:
    """The scheduler's host name, for HTTP."""
    return f"{service(cluster)}.{namespace}.svc"


def scheduler_address(cluster: str, namespace: str, protocol: str, port: int = COMM_PORT) -> str:
    """The address at which workers and clients find the scheduler; `port`: where it listens for that protocol."""
    found_by = headless_service(cluster) if needs_headless(protocol) else service(cluster)
    return f"{protocol}://{found_by}.{namespace}.svc:{port}"


def dashboard(cluster: str, namespace: str) -> str:
    """The dashboard's address."""
    return f"http://{scheduler_host(cluster, namespace)}:{DASHBOARD_PORT}/status"
