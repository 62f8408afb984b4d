"""Traces of a cluster on the machine, by the kernel's tables, not by our own records."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

from local.host.process_identity import ProcessId, identify, wait_unlisted
from local.layout import Layout

_NOTES = ("/run/containerd/s", "/run/containerd/runc/k8s.io", "/var/lib/cni/results", "/var/log/containers")
"""Where containerd, runc, CNI and the kubelet note containers outside a cluster's own directories."""


@dataclass(frozen=True)
class Machine:
    """One look at the machine."""

    mounts: frozenset[str]
    links: frozenset[str]
    rules: frozenset[str]
    sets: frozenset[str]
    namespaces: frozenset[str]
    cgroups: frozenset[str]
    notes: frozenset[str]

    @classmethod
    def look(cls) -> Machine:
        """The machine as it is now."""
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        links = [link["ifname"] for link in json.loads(_run("ip", "-json", "link"))]
        return cls(
            mounts=frozenset(mounts),
            links=frozenset(links),
            rules=frozenset(_rules()),
            sets=frozenset(_run("ipset", "list", "-name").split()) if shutil.which("ipset") else frozenset(),
            namespaces=frozenset(_entries("/run/netns")),
            cgroups=frozenset(directory for directory, _, _ in os.walk("/sys/fs/cgroup")),
            notes=frozenset(note for directory in _NOTES for note in _entries(directory)),
        )

    def more_than(self, before: Machine) -> dict[str, list[str]]:
        """What is here now and was not `before`, by kind; a kind with nothing is left out."""
        kinds = [field.name for field in fields(self)]
        more = {kind: sorted(getattr(self, kind) - getattr(before, kind)) for kind in kinds}
        return {kind: things for kind, things in more.items() if things}


def processes(layout: Layout) -> list[ProcessId]:
    """The processes of a cluster: those that were told of its directory, and those in its control groups."""
    return identify(pid for pid in _pids() if pid != os.getpid() and _belongs(pid, layout))


def kill(victims: list[ProcessId]) -> None:
    """End processes as a loss of power would, all at once, and wait until they are gone."""
    for process in victims:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    assert not wait_unlisted(victims, patience_seconds=60)


def _pids() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _belongs(pid: int, layout: Layout) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        cgroups = Path(f"/proc/{pid}/cgroup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return f"{layout.root}/" in command or f"/gpudask/{layout.name}/" in cgroups


def _rules() -> Iterator[str]:
    """Each rule, chain and policy as `TABLE RULE`, without its counters."""
    for family in ("iptables", "ip6tables"):
        table = ""
        for line in _run(f"{family}-save").splitlines():
            if line.startswith("*"):
                table = f"{family} {line[1:]}"
            elif line.startswith((":", "-A")):
                yield f"{table} {line.split('[')[0]}" if line.startswith(":") else f"{table} {line}"


def _entries(directory: str) -> list[str]:
    return [str(path) for path in Path(directory).iterdir()] if Path(directory).is_dir() else []


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
