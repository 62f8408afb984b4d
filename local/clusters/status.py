"""The output of `status`: every part, whether it lives, the nodes as they report, the images they have."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from local.clusters.cluster import Cluster
from local.errors import LocalClusterError
from local.nodes.node import Node


@dataclass(frozen=True)
class PartStatus:
    """A part that was started."""

    name: str
    pid: int
    alive: bool
    log: str


@dataclass(frozen=True)
class NodeStatus:
    """A node: why it is not ready (None where it is), and its images by reference."""

    name: str
    ready: bool
    reason: str | None
    images: list[str]


@dataclass(frozen=True)
class Status:
    """All that there is to see."""

    kubeconfig: str
    logs: str
    parts: list[PartStatus]
    nodes: list[NodeStatus]

    @property
    def healthy(self) -> bool:
        """Whether nothing needs `up`."""
        return all(part.alive for part in self.parts) and all(node.ready for node in self.nodes)


def read_status(cluster: Cluster) -> Status:
    """Look at everything; what does not answer is reported, not raised."""
    parts = [PartStatus(r.name, r.pid, r.alive, r.log) for r in cluster.processes.all()]
    nodes = [_node_status(cluster, node) for node in cluster.nodes]
    return Status(str(cluster.kubeconfig), str(cluster.layout.logs), parts, nodes)


def _node_status(cluster: Cluster, node: Node) -> NodeStatus:
    reason = node.blocker(cluster.api)
    try:
        images = sorted(cluster.images.of(node.spec.name).images())
    except LocalClusterError:
        images = []
    return NodeStatus(node.spec.name, reason is None, reason, images)


def print_status(status: Status, console: Console) -> None:
    """Print it for a reader."""
    parts = Table("part", "pid", "alive", box=None)
    for part in status.parts:
        parts.add_row(part.name, str(part.pid), "yes" if part.alive else "[red]no[/red]")
    nodes = Table("node", "ready", "images", box=None)
    for node in status.nodes:
        ready = "yes" if node.ready else f"[red]no: {node.reason}[/red]"
        nodes.add_row(node.name, ready, "\n".join(node.images))
    console.print(parts, nodes, f"KUBECONFIG={status.kubeconfig}", f"logs: {status.logs}", sep="\n", soft_wrap=True)
