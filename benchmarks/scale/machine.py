"""Where and with what a run was made."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from benchmarks.machine import checkout, machine
from local.binaries import KUBERNETES_VERSION


def describe() -> dict[str, Any]:
    """Date, machine and versions."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": {
            "kubernetes": KUBERNETES_VERSION,
            "python": platform.python_version(),
            **{name: version(name) for name in ("kopf", "kubernetes", "aiohttp", "distributed")},
            **checkout(),
        },
    }
