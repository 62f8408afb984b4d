"""Nodes that are drained, whose kubelet stops or restarts, or that nobody hears any more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos import processes
from tests.chaos.stage import Stage, chosen

_DRAIN_SECONDS = 40


@contextmanager
def drained(stage: Stage, pick: float) -> Iterator[str]:
    """`kubectl drain` of the workers of a node, which takes nothing new until the end."""
    node = _chosen(stage, pick)
    try:
        # It may not be done by then, or be refused on the way: then a part of them has been evicted.
        stage.platform.kubectl.inside("").attempt(
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
        stage.undo(f"the drain of {node}", lambda: stage.do("uncordon", node))


@contextmanager
def kubelet_frozen(stage: Stage, pick: float) -> Iterator[str]:
    """SIGSTOP to the kubelet: pods go on, nothing is begun or ended, and nothing reported."""
    node = _chosen(stage, pick)
    with processes.frozen(processes.of_part(stage.cluster, f"kubelet-{node}")):
        yield node


@contextmanager
def kubelet_restarted(stage: Stage, pick: float) -> Iterator[str]:
    """The kubelet ends and is started again."""
    node = _chosen(stage, pick)
    stage.cluster.processes.restart(f"kubelet-{node}")
    yield node


@contextmanager
def lost(stage: Stage, pick: float) -> Iterator[str]:
    """SIGSTOP to the kubelet, containerd and every process of every pod: the node is silent, and then comes back."""
    node = _chosen(stage, pick)
    victims = processes.of_node(stage.cluster, node)
    with processes.frozen(victims):
        yield f"{node}, {len(victims)} processes"


def _chosen(stage: Stage, pick: float) -> str:
    return chosen([spec.name for spec in stage.cluster.settings.specs], pick)
