"""The operator under attack: a process of its own, with the chart's rights, its memory and its log watched."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from local.ports import free_ports
from tests.reconcile.stage import eventually

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6
# What kopf puts before each line of a plain log: one that begins otherwise is a traceback's, or a forged one.
_LINE = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] \S+ +\[(DEBUG|INFO|WARNING|ERROR|CRITICAL) *\] ")
_DEFECTS = re.compile(r"Traceback|a defect|never retrieved|Unclosed|CRITICAL", re.IGNORECASE)
_SHOWN = 300


@dataclass
class OperatorProcess:
    """A running operator, which nobody restarts."""

    process: asyncio.subprocess.Process
    port: int
    log: Path
    _read_bytes: int = field(default=0)

    @property
    def resident_mb(self) -> float:
        """Resident memory in MB of 10^6 bytes, as `/proc/PID/statm` has it."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * _PAGE_MB

    @property
    def cpu_seconds(self) -> float:
        """What it has used by now, in user and system mode."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND

    @property
    def has_ended(self) -> bool:
        """Whether the process that was started is gone: nobody starts another."""
        return self.process.returncode is not None

    async def health(self) -> str:
        """What /healthz says."""
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{self.port}/healthz") as found,
            ):
                return f"{found.status} {await found.text()}"
        except aiohttp.ClientError as error:
            return f"no answer: {error}"

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
        least = self.resident_mb
        for _ in range(int(seconds * 2)):
            await asyncio.sleep(0.5)
            least = min(least, self.resident_mb)
        return least


@contextlib.asynccontextmanager
async def operating(kubeconfig: Path, namespace: str, log: Path) -> AsyncIterator[OperatorProcess]:
    """The operator of this checkout, acting on all namespaces, until the block ends."""
    port = free_ports(1)[0]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GPUDASK_")}
    environment = kept | {
        "KUBECONFIG": str(kubeconfig),
        "GPUDASK_NAMESPACE": namespace,
        "GPUDASK_HEALTH_PORT": str(port),
    }
    environment.pop("KUBERNETES_SERVICE_HOST", None)
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gpudask", env=environment, stdout=out, stderr=out
        )
    operator = OperatorProcess(process, port, log)
    try:
        await eventually(operator.health, lambda said: said.startswith("200 it leads"), "the operator leads")
        yield operator
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(15):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
