"""Waiting for a condition with a deadline, and saying what was seen when it passes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from local.errors import LocalClusterError
from local.host.processes import Processes

_POLL_SECONDS = 0.05
_LOG_LINES = 12


def wait_for(what: str, condition: Callable[[], str | None], *, deadline_seconds: float) -> None:
    """Poll until `condition` returns None; anything else is the reason why not yet.

    Raises:
        LocalClusterError: the deadline passed; the text ends with the last reason.
    """
    deadline = time.monotonic() + deadline_seconds
    while (blocker := condition()) is not None:
        if time.monotonic() > deadline:
            raise LocalClusterError(f"{what}: not within {deadline_seconds:.0f} s. {blocker}")
        time.sleep(_POLL_SECONDS)


def wait_for_part(
    processes: Processes, name: str, condition: Callable[[], str | None], *, deadline_seconds: float = 60
) -> None:
    """Wait until a started part works; give up at once when its process has ended.

    Raises:
        LocalClusterError: it ended or the deadline passed; the text has its log's path and last lines.
    """
    log = processes.log_of(name)

    def blocker() -> str | None:
        reason = condition()
        record = processes.find(name)
        if reason is not None and (record is None or not record.alive):
            raise LocalClusterError(f"{name} ended while starting. Its log: {log}\n{tail(log)}")
        return reason

    try:
        wait_for(f"{name} ready", blocker, deadline_seconds=deadline_seconds)
    except LocalClusterError as error:
        if str(log) in str(error):
            raise
        raise LocalClusterError(f"{error}\nIts log: {log}\n{tail(log)}") from error


def tail(log: Path) -> str:
    """Read a log's last lines."""
    if not log.exists():
        return "(no log)"
    return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
