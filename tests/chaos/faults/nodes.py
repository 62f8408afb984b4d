"""Nodes that are drained, whose kubelet stops or restarts, or that nobody hears any more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos import processes
from tests.chaos.target import Target, chosen

_DRAIN_SECONDS = 40


@contextmanager
def drained(target: Target, pick: float) -> Iterator[str]:
    """`kubectl drain` of the workers of a node, which takes nothing new until the end."""
    node = _chosen(target, pick)
    try:
        # It may not be done by then, or be refused on the way: then a part of them has been evicted.
        target.platform.kubectl.inside("").attempt(
            "drain",
            node,
            "--pod-selector=gpudask.dev/pool",
            "--delete-emptydir-data",
            "--force",
            f"--timeout={_DRAIN_SECONDS}s",
            "--request-timeout=15s",
        )
        yield node
    finally:
        target.undo(f"the drain of {node}", lambda: target.do("uncordon", node))


@contextmanager
def kubelet_frozen(target: Target, pick: float) -> Iterator[str]:
    """SIGSTOP to the kubelet: pods go on, nothing is begun or ended, and nothing reported."""
    node = _chosen(target, pick)
    with processes.frozen(processes.of_part(target.cluster, f"kubelet-{node}")):
        yield node


@contextmanager
def kubelet_restarted(target: Target, pick: float) -> Iterator[str]:
    """The kubelet ends and is started again."""
    node = _chosen(target, pick)
    target.cluster.processes.restart(f"kubelet-{node}")
    yield node


@contextmanager
def lost(target: Target, pick: float) -> Iterator[str]:
    """SIGSTOP to the kubelet, containerd and every process of every pod: the node is silent, and then comes back."""
    node = _chosen(target, pick)
    victims = processes.of_node(target.cluster, node)
    with processes.frozen(victims):
        yield f"{node}, {len(victims)} processes"


def _chosen(target: Target, pick: float) -> str:
    return chosen([spec.name for spec in target.cluster.settings.specs], pick)
