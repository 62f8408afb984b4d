"""The operator under attack: a process of its own, with the chart's rights, its memory and its log watched."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from local.operator.process import OperatorProcess, leading
from tests.conftest import ROOT

VALUES = ROOT / "charts" / "gpudask" / "values.yaml"

# What kopf puts before each line of a plain log: one that begins otherwise is a traceback's, or a forged one.
_LINE = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] \S+ +\[(DEBUG|INFO|WARNING|ERROR|CRITICAL) *\] ")
_DEFECTS = re.compile(r"Traceback|a defect|never retrieved|Unclosed|CRITICAL", re.IGNORECASE)
_SHOWN = 300
# What is deleted is remembered for minutes, and memory is given back once more 400 s after work (gpudask/heap.py).
FORGOTTEN_SECONDS = 600.0


@dataclass
class AttackedOperator:
    """A running operator, which nobody restarts, and its log."""

    process: OperatorProcess
    log: Path
    _read_bytes: int = field(default=0)

    @property
    def has_ended(self) -> bool:
        """Whether the process that was started is gone: nobody starts another."""
        return self.process.returncode is not None

    def complaints(self) -> list[str]:
        """What should not be in the log, of what was written since the last call: each kind of line once, at most 3."""
        with self.log.open("rb") as file:
            file.seek(self._read_bytes)
            text = file.read().decode(errors="replace")
        self._read_bytes = self.log.stat().st_size
        found: dict[str, None] = {}
        for line in text.splitlines():
            if line.strip() and (_DEFECTS.search(line) or not _LINE.match(line)):
                found[line[:_SHOWN]] = None
        return list(found)[:3]

    @property
    def log_mb(self) -> float:
        """How long the log is by now."""
        return self.log.stat().st_size / 1e6

    async def at_rest(self, *, seconds: float = 10.0) -> float:
        """The least resident memory within so many seconds: what it comes down to once nothing is left to do."""
        least = self.process.resident_mb
        for _ in range(int(seconds * 2)):
            await asyncio.sleep(0.5)
            least = min(least, self.process.resident_mb)
        return least

    async def comes_down(self, limit_mb: float, *, seconds: float = FORGOTTEN_SECONDS) -> tuple[float, float]:
        """Wait until the resident memory is at most `limit_mb`, or so many seconds; what it is, and after how many."""
        began = time.monotonic()
        for _ in range(int(seconds)):
            if self.process.resident_mb <= limit_mb:
                break
            await asyncio.sleep(1.0)
        return self.process.resident_mb, time.monotonic() - began


@contextlib.asynccontextmanager
async def operating(kubeconfig: Path, namespace: str, log: Path) -> AsyncIterator[AttackedOperator]:
    """The operator of this checkout, acting on all namespaces, until the block ends.

    Of the chart's limits it has the rate of creations alone: the others refuse what the attacks are about.
    """
    rate = yaml.safe_load(VALUES.read_text())["limits"]["creationsPerSecond"]
    settings = {"GPUDASK_NAMESPACE": namespace, "GPUDASK_LIMITS": json.dumps({"creationsPerSecond": rate})}
    async with leading(kubeconfig, log, settings) as process:
        yield AttackedOperator(process, log)
