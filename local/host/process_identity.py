"""Processes identified by pid and start time: a pid alone may have been given to another program since."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_STATE_FIELD = 0
_START_TIME_FIELD = 19
"""Counted after the command's name in /proc/PID/stat, see proc(5); in clock ticks since boot."""
_ENDED = {"Z", "X"}
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class ProcessId:
    """One process for good: its pid, and when it started in clock ticks since boot."""

    pid: int
    start_ticks: int

    @property
    def listed(self) -> bool:
        """Whether the kernel still lists it, running or ended."""
        return _state_and_start(self.pid)[1] == self.start_ticks

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return start_ticks(self.pid) == self.start_ticks


def boot_id() -> str:
    """Identify this boot: start times and pids begin anew with each."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def start_ticks(pid: int) -> int | None:
    """Tell when `pid` started, in clock ticks since boot; None where no such process runs."""
    state, start = _state_and_start(pid)
    return None if state in _ENDED else start


def identify(pids: Iterable[int]) -> list[ProcessId]:
    """Identify those of `pids` that run."""
    return [ProcessId(pid, ticks) for pid in pids if (ticks := start_ticks(pid)) is not None]


def wait_unlisted(processes: Iterable[ProcessId], *, patience_seconds: float) -> list[ProcessId]:
    """Wait until processes that were told to end have left the process table. Returns those that have not.

    One that has ended stays listed until its parent collects it. The parts' parent is init, and some inits look
    for the dead once a second.
    """
    deadline = time.monotonic() + patience_seconds
    left = [process for process in processes if process.listed]
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        left = [process for process in left if process.listed]
    return left


def reap(pid: int) -> None:
    """Collect `pid` if it is our own dead child: a test session starts and stops many."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _state_and_start(pid: int) -> tuple[str, int | None]:
    """Read the state of `pid`, a letter of proc(5), and its start; `X` and None where there is none."""
    reap(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return "X", None
    # The name stands in parentheses and may itself hold spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    return fields[_STATE_FIELD], int(fields[_START_TIME_FIELD])
