"""Files that containerd, runc and CNI leave of a node's containers outside the node's own directories.

They take it back when a container is deleted; of containers that were killed it stays.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from local.layout import NodeLayout

_NAMESPACE = "k8s.io"
_RUN = Path("/run/containerd")
_CNI_RESULTS = Path("/var/lib/cni/results")


def container_ids(node: NodeLayout) -> set[str]:
    """List the containers, sandboxes too, that the node's containerd has started and not deleted."""
    tasks = node.containerd_state / "io.containerd.runtime.v2.task" / _NAMESPACE
    return {path.name for path in tasks.iterdir()} if tasks.is_dir() else set()


def remove_traces(node: NodeLayout, ids: Iterable[str], *, run: Path = _RUN, results: Path = _CNI_RESULTS) -> None:
    """Remove what was noted of these containers, which must have ended."""
    for container in ids:
        (run / "s" / _shim_socket(node, container)).unlink(missing_ok=True)
        shutil.rmtree(run / "runc" / _NAMESPACE / container, ignore_errors=True)
        for result in results.glob(f"*-{container}-*"):
            result.unlink()


def _shim_socket(node: NodeLayout, container: str) -> str:
    """Name the socket of a shim as containerd's `shim.SocketAddress` does."""
    return hashlib.sha256(str(node.socket / _NAMESPACE / container).encode()).hexdigest()
