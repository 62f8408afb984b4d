#!/usr/bin/env python3
"""What the two commands of the README assume of a machine, checked before anything is made, in one list.

`python3 local/host/machine.py cluster` is run by the Makefile with whatever Python there is, so here is the standard
library alone, and nothing that an older Python could not read. What Debian has to bring beside that is installed later,
by `local/programs/requirements.py`.
"""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

OLDEST_PYTHON = (3, 11)
IMAGES_PYTHON = (3, 11)
"""A function that one minor version of Python has pickled does not run in another: programs need the images'."""
MEMORY_GIB = 6
DISK_GIB = 8
PORTS = (20000, 32000)
"""From here instances of etcd and API servers get theirs: see ports.py."""
FREE_PORTS = 100
FIXED_PORTS = (10256, 10257, 10259, 20244)
"""On 127.0.0.1: the health pages of kube-proxy, the controller manager, the scheduler and the firewall."""
_GIB = 1 << 30
_TRIED_PORTS = 400


@dataclass(frozen=True)
class Machine:
    """What a machine is like.

    `memory_gib`, `disk_gib`: all of the first, free of the second, at `cache`. `free_ports`: of `PORTS`, about.
    `taken`: those of FIXED_PORTS in use by another program. `has_cluster`: `up` was run and `down` was not.
    """

    is_linux: bool
    is_root: bool
    python: tuple[int, int]
    has_venv: bool
    commands: frozenset[str]
    memory_gib: float
    disk_gib: float
    cache: str
    free_ports: int
    taken: tuple[int, ...]
    has_cluster: bool

    @classmethod
    def read(cls, cache: Path | None = None) -> Machine:
        """This machine, with the Python that runs this."""
        place = cache or Path(os.environ.get("GPUDASK_CACHE_DIR") or Path.home() / ".cache" / "gpudask")
        clusters = Path(os.environ.get("GPUDASK_LOCAL_DIR") or place / "local")
        return cls(
            is_linux=sys.platform == "linux",
            is_root=hasattr(os, "geteuid") and os.geteuid() == 0,
            python=(sys.version_info[0], sys.version_info[1]),
            has_venv=all(importlib.util.find_spec(name) is not None for name in ("venv", "ensurepip")),
            commands=frozenset(name for name in ("git", "make", "apt-get") if shutil.which(name)),
            memory_gib=_memory_bytes() / _GIB,
            disk_gib=shutil.disk_usage(_existing(place)).free / _GIB,
            cache=str(place),
            free_ports=_free_ports(),
            taken=tuple(port for port in FIXED_PORTS if not _is_free(port)),
            has_cluster=(clusters / "default" / "cluster.json").exists(),
        )


def lacking(machine: Machine, *, for_cluster: bool) -> list[str]:
    """What is missing, one line each with how to get it; `for_cluster`: for the local Kubernetes, too. Pure."""
    found = _for_python(machine, for_cluster=for_cluster)
    found += [f"{name}: apt-get install {name}" for name in ("git", "make") if name not in machine.commands]
    if for_cluster:
        found += _for_cluster(machine)
    return found


def _for_python(machine: Machine, *, for_cluster: bool) -> list[str]:
    found, has = [], ".".join(map(str, machine.python))
    if for_cluster and machine.python != IMAGES_PYTHON:
        wanted = ".".join(map(str, IMAGES_PYTHON))
        found.append(
            f"Python {wanted}, which the images have (this is {has}): install one beside it, and say where it is:"
            f" make PYTHON=/path/to/python{wanted} ..."
        )
    elif machine.python < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        found.append(f"Python {wanted} or newer (this is {has}): make PYTHON=/path/to/python{wanted} ...")
    if not machine.has_venv:
        found.append("Python's venv: apt-get install python3-venv")
    return found


def _for_cluster(machine: Machine) -> list[str]:
    found = []
    if not machine.is_linux:
        found.append("Linux: a virtual machine with Debian, for instance")
    elif "apt-get" not in machine.commands:
        found.append("apt-get: a Debian, or a system made of it such as Ubuntu")
    if not machine.is_root:
        found.append("root: run it with sudo, or as root in a virtual machine")
    if machine.memory_gib < MEMORY_GIB:
        found.append(f"{MEMORY_GIB} GiB of memory: this machine has {machine.memory_gib:.1f}")
    if machine.disk_gib < DISK_GIB and not machine.has_cluster:
        found.append(
            f"{DISK_GIB} GiB of free disk under {machine.cache}: it has {machine.disk_gib:.1f};"
            " GPUDASK_CACHE_DIR names another place"
        )
    if machine.free_ports < FREE_PORTS:
        found.append(f"{FREE_PORTS} free ports between {PORTS[0]} and {PORTS[1]}: there are {machine.free_ports}")
    if machine.taken and not machine.has_cluster:
        taken = ", ".join(map(str, machine.taken))
        found.append(f"port {taken}, in use by another program: another Kubernetes? End it first (ss -ltnp names it)")
    return found


def _existing(place: Path) -> Path:
    while not place.exists():
        place = place.parent
    return place


def _memory_bytes() -> float:
    """All memory, or what this process' control group may have of it."""
    total = float("inf")
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        total = next(float(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:"))
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        return min(total, float(limit)) if limit.isdigit() else total
    except (OSError, StopIteration, ValueError):
        return total


def _free_ports() -> int:
    ports = random.sample(range(*PORTS), k=_TRIED_PORTS)
    return sum(map(_is_free, ports)) * (PORTS[1] - PORTS[0]) // _TRIED_PORTS


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def main() -> None:
    """Check this machine; what it lacks is printed, and ends the command."""
    found = lacking(Machine.read(), for_cluster="cluster" in sys.argv[1:])
    if found:
        sys.exit("This machine lacks:\n" + "\n".join(f"- {line}" for line in found))


if __name__ == "__main__":
    main()
