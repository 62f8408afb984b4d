"""Where and with what a run was made: for the file that keeps its figures."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.startup import peer_environment
from gpudask.clients.kubernetes import Kubernetes

_GIB = 1024**3


async def describe(api: Kubernetes, operator: tuple[str, str], *, as_installed: bool) -> dict[str, Any]:
    """Date, machine and versions; `operator`: the namespace and name of gpudask's Deployment.

    `as_installed`: the operator may be of another commit than `checkout`, of which the floor's pods are.
    """
    namespace, name = operator
    deployment = await api.request("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "memory_gib": round(memory / _GIB, 1),
            "kernel": platform.release(),
            "architecture": platform.machine(),
        },
        "versions": {
            "kubernetes": (await api.request("GET", "/version"))["gitVersion"],
            "python": platform.python_version(),
            "distributed": version("distributed"),
            "dask-kubernetes": peer_environment.version(),
            "gpudask-operator": deployment["spec"]["template"]["spec"]["containers"][0]["image"],
            "gpudask-operator-as-installed": as_installed,
            "checkout": _git("rev-parse", "--short=12", "HEAD"),
            "checkout-edited": bool(_git("status", "--porcelain", "--", "operator")),
        },
    }


def _git(*arguments: str) -> str:
    root = Path(__file__).parent
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip()
