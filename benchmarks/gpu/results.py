"""The file that keeps figures: each call adds its measurements, so that several calls make one table."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.gpu.runner import BenchmarkError
from benchmarks.testbed.machine import checkout, machine, now
from benchmarks.testbed.report import keep

Json = dict[str, Any]

_QUERY = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
_TOPOLOGY = ("nvidia-smi", "topo", "-m")


def read(path: Path) -> list[Json]:
    """All that was measured; nothing where there is no file."""
    return list(json.loads(path.read_text())["measured"]) if path.exists() else []


def add(path: Path, name: str, figures: Json, *, gpus: int) -> None:
    """Add one measurement, with when, where and of which commit.

    Raises:
        BenchmarkError: the file is of another machine: figures of both would make no table.
    """
    before = read(path)
    record = {
        "measurement": name,
        "at": now(),
        "hardware": hardware(gpus),
        **checkout(),
        "figures": figures,
    }
    if before and before[0]["hardware"]["gpus"] != record["hardware"]["gpus"]:
        theirs = before[0]["hardware"]["gpus"]
        raise BenchmarkError(f"{path} has figures of other GPUs, {theirs}: name another file with --json")
    fresh = path.with_suffix(".new")
    keep(fresh, {"measured": [*before, record]})
    fresh.replace(path)


def hardware(gpus: int) -> Json:
    """This machine and its GPUs, as its driver names them; `gpus` as Kubernetes counts them."""
    names = [line.strip() for line in _said(_QUERY).splitlines() if line.strip()]
    return {"gpus": {"count": gpus, "names": names}, "topology": _said(_TOPOLOGY), **machine()}


def _said(command: tuple[str, ...]) -> str:
    """What the driver's program says; empty where there is none."""
    if not shutil.which(command[0]):
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
