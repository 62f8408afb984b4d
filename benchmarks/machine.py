"""On what machine and from which checkout a run was made: for the files that keep figures."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

_GIB = 1024**3


def machine() -> dict[str, Any]:
    """The machine; `memory_gib` in GiB, `load`: runnable processes of the last minute, ours not yet among them."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory / _GIB, 1),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "load": os.getloadavg()[0],
    }


def checkout() -> dict[str, Any]:
    """The commit, and whether the operator was edited since; empty and False where there is no repository."""
    return {
        "checkout": _git("rev-parse", "--short=12", "HEAD"),
        "checkout-edited": bool(_git("status", "--porcelain", "--", "operator")),
    }


def _git(*arguments: str) -> str:
    root = Path(__file__).parents[1]
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False).stdout.strip()
