"""The operator as a process of its own: started, waited for, weighed, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from benchmarks.scale.counters import Counters, Counts
from benchmarks.scale.waiting import until
from local.ports import free_ports

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_KIB_A_MB = 1000 * 1000 / 1024


@dataclass(frozen=True)
class Work:
    """What the operator did: CPU seconds of its process, and counts."""

    cpu_seconds: float
    counts: Counts

    def __sub__(self, before: Work) -> Work:
        """What was done since `before`."""
        return Work(self.cpu_seconds - before.cpu_seconds, self.counts - before.counts)


class OperatorProcess:
    """A running operator."""

    def __init__(self, process: asyncio.subprocess.Process, counters: Counters) -> None:
        self._process = process
        self._counters = counters

    @property
    def resident_mb(self) -> float:
        """Resident memory of the process in MB of 10^6 bytes."""
        return self._status("VmRSS") / _KIB_A_MB

    @property
    def peak_mb(self) -> float:
        """The most that it ever was, in MB."""
        return self._status("VmHWM") / _KIB_A_MB

    @property
    def work(self) -> Work:
        """What it has done by now."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return Work((int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND, self._counters.read())

    def _status(self, field: str) -> int:
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


@contextlib.asynccontextmanager
async def operating(kubeconfig: Path, scratch: Path) -> AsyncIterator[OperatorProcess]:
    """The operator of this checkout, its caches full, until the block ends; its log lies in `scratch`."""
    counted = scratch / "counts"
    counters = Counters.open(counted, create=True)
    port = free_ports(1)[0]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GPUDASK_")}
    environment = kept | {"KUBECONFIG": str(kubeconfig), "GPUDASK_HEALTH_PORT": str(port)}
    environment.pop("KUBERNETES_SERVICE_HOST", None)
    with (scratch / "operator.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.scale.counted", str(counted)), env=environment, stdout=log, stderr=log
        )
    try:
        await _acts(process, port)
        yield OperatorProcess(process, counters)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(15):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def _acts(process: asyncio.subprocess.Process, port: int) -> None:
    async with aiohttp.ClientSession() as session:

        async def look() -> bool:
            assert process.returncode is None, "the operator ended; its log says why"
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                    return (await answer.text()).startswith("it leads")
            return False

        await until(look, "the operator's caches are full, and it leads", seconds=120)
