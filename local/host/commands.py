"""Short-lived programs: run to their end, with an error that says which one and what it printed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from local.errors import LocalClusterError

_LINES = 20


def run(
    command: Sequence[str],
    *,
    stdin: str | None = None,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> str:
    """Run a program and return what it printed; with `log`, all that goes there instead, as it comes.

    Raises:
        LocalClusterError: it is not installed, or exited with another status than 0.
    """
    output = subprocess.PIPE
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        done = subprocess.run(
            command,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdout=output,
            stderr=subprocess.PIPE if log is None else subprocess.STDOUT,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise LocalClusterError(f"{command[0]} is not installed: `up` installs what it needs.") from error
    finally:
        if log is not None:
            os.close(output)
    printed = done.stderr + done.stdout if log is None else log.read_text(errors="replace")
    if done.returncode:
        last = "\n".join(printed.strip().splitlines()[-_LINES:])
        where = f"\nAll of it: {log}" if log else ""
        raise LocalClusterError(f"`{' '.join(command)}` ended with status {done.returncode}:\n{last}{where}")
    return done.stdout or ""


def succeeds(command: Sequence[str]) -> bool:
    """Run a program only for its exit status; one that is not installed did not succeed."""
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
