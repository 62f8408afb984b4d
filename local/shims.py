"""containerd's shims: they outlive it on purpose, and so must be found by what they were told."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path


def kill_shims(socket: Path) -> None:
    """Kill the shims of the containerd that listens at `socket`, and of no other."""
    for pid in shims_of(socket):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def shims_of(socket: Path) -> list[int]:
    """Find the shims that report to `socket`."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with suppress(FileNotFoundError, ProcessLookupError):
            arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if Path(arguments[0]).name.startswith("containerd-shim") and str(socket) in arguments:
                found.append(int(process.name))
    return found
