"""Control groups: one subtree a node, so that two kubelets on one machine do not share their pods'."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_OURS = "gpudask"
_DEADLINE_SECONDS = 5.0


def cgroup_of(cluster: str, node: str) -> str:
    """Name the subtree of a node, as the kubelet's `cgroupRoot` wants it."""
    return f"/{_OURS}/{cluster}/{node}"


def ensure_cgroup(path: str) -> None:
    """Make the subtree `path` in every hierarchy, with what its children need passed down."""
    for hierarchy in _hierarchies():
        directory = hierarchy
        if _is_unified(directory):
            _pass_controllers_down(directory)
        for name in path.strip("/").split("/"):
            directory /= name
            directory.mkdir(exist_ok=True)
            _pass_controllers_down(directory) if _is_unified(hierarchy) else _fill_cpuset(directory)


def remove_cgroups(cluster: str) -> None:
    """Kill what still runs in a cluster's subtrees, all of it pods' processes, and remove them.

    Raises:
        OSError: a directory is still busy after 5 s.
    """
    subtrees = [h / _OURS / cluster for h in _hierarchies() if (h / _OURS / cluster).is_dir()]
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while sum(_kill_members(subtree) for subtree in subtrees) and time.monotonic() < deadline:
        time.sleep(0.05)
    for subtree in subtrees:
        for directory, _, _ in os.walk(subtree, topdown=False):
            _remove(Path(directory), deadline)
        with suppress(OSError):  # another cluster's lie beside it
            subtree.parent.rmdir()


def members(cluster: str) -> set[int]:
    """List the processes in a cluster's subtrees: all are pods'."""
    return {pid for hierarchy in _hierarchies() for pid in _members(hierarchy / _OURS / cluster)}


def _hierarchies() -> list[Path]:
    if _is_unified(_ROOT):
        return [_ROOT]
    return [path for path in _ROOT.iterdir() if path.is_dir() and not path.is_symlink()]


def _is_unified(directory: Path) -> bool:
    return (directory / "cgroup.controllers").exists()


def _pass_controllers_down(directory: Path) -> None:
    available = (directory / "cgroup.controllers").read_text().split()
    for controller in available:
        with suppress(OSError):  # some cannot be delegated; the kubelet names those that it misses
            (directory / "cgroup.subtree_control").write_text(f"+{controller}")


def _fill_cpuset(directory: Path) -> None:
    """Copy what a new cpuset lacks from its parent: an empty one accepts no process."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = directory / name
        if file.exists() and not file.read_text().strip():
            file.write_text((directory.parent / name).read_text())


def _kill_members(subtree: Path) -> bool:
    killed = False
    for pid in _members(subtree):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed = True
    return killed


def _members(subtree: Path) -> Iterator[int]:
    for directory, _, _ in os.walk(subtree):
        with suppress(OSError):  # its group may go at any moment: FileNotFoundError, or ENODEV from within
            yield from map(int, (Path(directory) / "cgroup.procs").read_text().split())


def _remove(directory: Path, deadline: float) -> None:
    while True:
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
