"""On what machine, with what and from which checkout a run was made: for the files that keep figures."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from local.layout import REPOSITORY

_GIB = 1024**3


def describe(kubernetes: str, packages: Iterable[str], **more: Any) -> dict[str, Any]:
    """Date, machine and versions: of Kubernetes, of Python, of installed `packages`, and of whatever else is named."""
    return {
        "date": now(),
        "machine": machine(),
        "versions": {
            "kubernetes": kubernetes,
            "python": platform.python_version(),
            **{name: version(name) for name in packages},
            **more,
            **checkout(),
        },
    }


def now() -> str:
    """The time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


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
    return subprocess.run(
        ["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    ).stdout.strip()
