"""Where and with what a run was made: for the file that keeps its figures."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from benchmarks.machine import checkout, machine
from benchmarks.startup import peer_environment
from gpudask.clients.kubernetes import Kubernetes


async def describe(api: Kubernetes, operator: tuple[str, str], *, as_installed: bool) -> dict[str, Any]:
    """Date, machine and versions; `operator`: the namespace and name of gpudask's Deployment.

    `as_installed`: the operator may be of another commit than `checkout`, of which the floor's pods are.
    """
    namespace, name = operator
    deployment = await api.request("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": {
            "kubernetes": (await api.request("GET", "/version"))["gitVersion"],
            "python": platform.python_version(),
            "distributed": version("distributed"),
            "dask-kubernetes": peer_environment.version(),
            "gpudask-operator": deployment["spec"]["template"]["spec"]["containers"][0]["image"],
            "gpudask-operator-as-installed": as_installed,
            **checkout(),
        },
    }
