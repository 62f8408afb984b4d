"""`down`: ends what `up` started, whole or half dead, and removes what it left on the machine."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from local.errors import LocalClusterError
from local.host.process_identity import ProcessId, identify, wait_unlisted
from local.host.processes import Processes
from local.host.progress import Steps
from local.layout import Layout, NodeLayout
from local.nodes.cgroups import members, remove_cgroups
from local.nodes.containerd import Containerd, container_ids, kill_shims, remove_files_of, shims_of
from local.nodes.mounts import unmount_below
from local.nodes.network import remove_network
from local.nodes.node_spec import NodeSpec

_GONE_SECONDS = 10.0
_CONTAINER_LOGS = Path("/var/log/containers")
"""Where every kubelet puts links to its pods' logs, whatever its own directories are."""


def tear_down(layout: Layout, specs: Sequence[NodeSpec], steps: Steps) -> None:
    """Leave no process, mount, network namespace, bridge, rule or control group of the cluster.

    Images stay on the nodes, where the next `up` finds them; logs stay for who asks what happened.

    Raises:
        LocalClusterError: something cannot be ended or unmounted; the text names it.
    """
    processes = Processes(layout.records, layout.logs)
    ours = _running(layout, specs, processes)
    containers = {spec.name: container_ids(layout.node(spec.name)) for spec in specs}
    with steps.step("Stopping the control plane and the kubelets"):
        containerds = [spec.containerd for spec in specs]
        others = [record.name for record in processes.all() if record.name not in containerds]
        processes.stop(others, patience_seconds=1)
    with steps.step("Ending pods"):
        remove_cgroups(layout.name)
        for spec in specs:
            _end_containers(processes, spec, layout.node(spec.name))
    with steps.step("Removing mounts, networks and rules"):
        unmount_below(layout.root)
        remove_network(tuple(specs))
        # Ending containers may have made their control groups once more.
        remove_cgroups(layout.name)
        for spec in specs:
            remove_files_of(layout.node(spec.name), containers[spec.name])
        _remove_log_links(layout)
        _remove_files(layout, specs)
    with steps.step("Waiting until the last process is gone"):
        _wait_gone(ours)


def _running(layout: Layout, specs: Sequence[NodeSpec], processes: Processes) -> list[ProcessId]:
    """Identify everything that runs: the parts, the containers, and the shims between."""
    parts = {record.pid for record in processes.all() if record.alive}
    shims = {pid for spec in specs for pid in shims_of(layout.node(spec.name).socket)}
    return identify(parts | shims | members(layout.name))


def _wait_gone(processes: Sequence[ProcessId]) -> None:
    """Wait for all of them, but for those that have ended and that init, whose business it is, does not collect."""
    left = wait_unlisted(processes, patience_seconds=_GONE_SECONDS)
    if pids := " ".join(str(process.pid) for process in left if process.running):
        raise LocalClusterError(f"some processes did not end within {_GONE_SECONDS:g} s of SIGKILL: `ps {pids}`.")


def _end_containers(processes: Processes, spec: NodeSpec, node: NodeLayout) -> None:
    record = processes.find(spec.containerd)
    if record and record.alive:
        Containerd(node.socket).remove_containers()
    processes.stop([spec.containerd], patience_seconds=2)
    kill_shims(node.socket)


def _remove_log_links(layout: Layout) -> None:
    if not _CONTAINER_LOGS.is_dir():
        return
    for link in _CONTAINER_LOGS.iterdir():
        with suppress(OSError):
            if link.readlink().is_relative_to(layout.nodes):
                link.unlink()


def _remove_files(layout: Layout, specs: Sequence[NodeSpec]) -> None:
    kept = {layout.logs, layout.nodes, *(layout.node(spec.name).root for spec in specs)}
    kept |= {layout.node(spec.name).containerd_root for spec in specs}
    for directory in (layout.root, *(layout.node(spec.name).root for spec in specs)):
        for path in directory.iterdir() if directory.is_dir() else ():
            if path in kept:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
