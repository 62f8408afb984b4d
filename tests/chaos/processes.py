"""Processes of pods and of the cluster's parts, found by their control groups, and what is done to them."""

from __future__ import annotations

from gpudask.api import Json

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from local.clusters.cluster import Cluster
from local.errors import LocalClusterError
from local.host.process_identity import ProcessId, identify


def of_container(pod: Json) -> list[ProcessId]:
    """The processes of a pod's first container, that which began first in front; none where it does not run."""
    statuses = pod.get("status", {}).get("containerStatuses") or [{}]
    identity = statuses[0].get("containerID", "").removeprefix("containerd://")
    found = identify(_in_groups(lambda group: bool(identity) and group.endswith(identity)))
    return sorted(found, key=lambda process: (process.start_ticks, process.pid))


def of_node(cluster: Cluster, node: str) -> list[ProcessId]:
    """The node's kubelet and containerd, then all processes of its pods."""
    spec = next(each for each in cluster.settings.specs if each.name == node)
    parts = [process for name in (spec.kubelet, spec.containerd) for process in of_part(cluster, name)]
    inside = f"/gpudask/{cluster.layout.name}/{node}/"
    return parts + identify(_in_groups(lambda group: inside in f"{group}/"))


def of_part(cluster: Cluster, name: str) -> list[ProcessId]:
    """The process of a part by its name in `python -m local status`.

    Raises:
        LocalClusterError: it does not run.
    """
    record = cluster.processes.find(name)
    if record is None or not record.alive:
        raise LocalClusterError(f"{name} does not run")
    return [ProcessId(record.pid, record.start_ticks)]


def restart_ended(cluster: Cluster) -> list[str]:
    """Start the parts again that no fault ends and that have ended by themselves; which these were.

    A kubelet does so where they are static pods, and they count on it: kube-scheduler ends itself when its cache
    contradicts what the API server says, as after answers that were lost.
    """
    found = [cluster.processes.find(name) for name in ("kube-scheduler", "kube-controller-manager")]
    ended = [record.name for record in found if record is not None and not record.alive]
    for name in ended:
        cluster.processes.restart(name)
    return ended


def send(processes: Iterable[ProcessId], number: signal.Signals) -> None:
    """Send a signal to those that still run."""
    for process in processes:
        if process.running:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)


@contextmanager
def frozen(processes: list[ProcessId]) -> Iterator[None]:
    """Stop them, and let them go on when the block ends."""
    try:
        send(processes, signal.SIGSTOP)
        yield
    finally:
        send(processes, signal.SIGCONT)


def thaw(cluster: Cluster) -> None:
    """Let all go on that a run which was killed has left frozen."""
    for record in cluster.processes.all():
        if record.alive:
            send([ProcessId(record.pid, record.start_ticks)], signal.SIGCONT)
    send(identify(_in_groups(lambda group: f"/gpudask/{cluster.layout.name}/" in group)), signal.SIGCONT)


def _in_groups(is_meant: Any) -> Iterator[int]:
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            with suppress(OSError):  # it ended meanwhile
                groups = {line.split(":", 2)[2] for line in (directory / "cgroup").read_text().splitlines()}
                if any(map(is_meant, groups)):
                    yield int(directory.name)
