"""Which process a pid means: a pid alone may have been given to another program since."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_STATE_FIELD = 0
_START_TIME_FIELD = 19
"""Counted after the command's name in /proc/PID/stat, see proc(5); in clock ticks since boot."""


def boot_id() -> str:
    """Identify this boot: start times and pids begin anew with each."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def start_ticks(pid: int) -> int | None:
    """Tell when `pid` started, in clock ticks since boot; None where no such process runs."""
    reap(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in parentheses and may itself hold spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    if fields[_STATE_FIELD] in {"Z", "X"}:
        return None
    return int(fields[_START_TIME_FIELD])


def reap(pid: int) -> None:
    """Collect `pid` if it is our own dead child: a test session starts and stops many."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
