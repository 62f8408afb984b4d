"""Whether the tests on GPUs can run here, and what the machine is. Standard library alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

DEVICE = Path("/dev/nvidia0")
SWITCH = "GPUDASK_GPU_TESTS"
"""Set by `python -m tests.gpu`, which has prepared the machine."""


def why_not() -> str:
    """Why these tests cannot run here; empty where they can."""
    if not DEVICE.exists():
        return f"needs a GPU, and there is no {DEVICE}"
    if not os.environ.get(SWITCH):
        return "on this machine `python -m tests.gpu` runs them: it prepares the cluster"
    return ""


def devices() -> str:
    """What nvidia-smi says of the machine's GPUs: names, UUIDs and the driver."""
    listed = _smi("-L")
    driver = _smi("--query-gpu=driver_version,memory.total,pci.bus_id", "--format=csv")
    return f"{listed}\n{driver}"


def uuids() -> set[str]:
    """The GPUs' UUIDs, as 32 hexadecimal digits."""
    listed = _smi("--query-gpu=uuid", "--format=csv,noheader").split()
    return {uuid.removeprefix("GPU-").replace("-", "") for uuid in listed}


def _smi(*arguments: str) -> str:
    path = shutil.which("nvidia-smi") or "/usr/local/nvidia/bin/nvidia-smi"
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=True).stdout.strip()
