"""Where and with what a run was made."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from local.binaries import KUBERNETES_VERSION

_GIB = 1024**3


def describe() -> dict[str, Any]:
    """Date, machine and versions; `load`: runnable processes of the last minute, ours not yet among them."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "memory_gib": round(memory / _GIB, 1),
            "kernel": platform.release(),
            "architecture": platform.machine(),
            "load": os.getloadavg()[0],
        },
        "versions": {
            "kubernetes": KUBERNETES_VERSION,
            "python": platform.python_version(),
            **{name: version(name) for name in ("kopf", "kubernetes", "aiohttp", "distributed")},
            "checkout": _git("rev-parse", "--short=12", "HEAD"),
            "checkout-edited": bool(_git("status", "--porcelain", "--", "operator")),
        },
    }


def _git(*arguments: str) -> str:
    root = Path(__file__).parent
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip()
