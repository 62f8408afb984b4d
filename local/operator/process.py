"""The operator of this checkout as a process of this machine: for the tests and the benchmarks alike."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Self

import aiohttp

from local.host.ports import free_ports

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_KIB_A_MB = 1000 * 1000 / 1024
_POLL_SECONDS = 0.02
# Nothing of our own surroundings steers it. Imports find their bytecode, as they do in the image.
_LEFT_OUT = ("GPUDASK_", "KUBERNETES_SERVICE_", "PYTHONDONTWRITEBYTECODE")

AS_IN_THE_IMAGE = {"PYTHONMALLOC": "malloc"}
"""Of the environment that images/operator sets, what tells in CPU and memory."""
# Modules that fail to be imported, as they do in the image; the packages are there for the tests of other programs.
_NOT_IN_THE_IMAGE = Path(__file__).with_name("not_in_the_image")


def as_in_the_image(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment`, so that a process imports and allocates as in the operator's image."""
    kept = {key: value for key, value in environment.items() if not key.startswith(_LEFT_OUT)}
    places = [str(_NOT_IN_THE_IMAGE), *filter(None, [environment.get("PYTHONPATH")])]
    return kept | AS_IN_THE_IMAGE | {"PYTHONPATH": os.pathsep.join(places)}


class OperatorProcess:
    """A running operator, which nobody restarts."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self._port = port

    @classmethod
    async def start(
        cls, kubeconfig: Path, log: Path, settings: Mapping[str, str], module: Sequence[str] = ("gpudask",)
    ) -> Self:
        """Start it; it is not up yet. What it writes is added to `log`.

        Args:
            kubeconfig: who it is, and on which cluster.
            log: a file.
            settings: variables of its environment, those of the chart's container.
            module: what `python -m` runs, with its arguments.
        """
        port = free_ports(1, host="")[0]
        own = {"KUBECONFIG": str(kubeconfig), "GPUDASK_HEALTH_PORT": str(port)}
        with log.open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", *module),
                env=as_in_the_image(os.environ) | dict(settings) | own,
                stdout=out,
                stderr=out,
            )
        return cls(process, port)

    @property
    def returncode(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.returncode

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds that it has used by now, in user and system mode."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND

    @property
    def resident_mb(self) -> float:
        """Resident memory in MB of 10^6 bytes."""
        return self._memory_mb("status", "VmRSS")

    @property
    def peak_mb(self) -> float:
        """The most that it ever was, in MB."""
        return self._memory_mb("status", "VmHWM")

    @property
    def proportional_mb(self) -> float:
        """The same as `resident_mb`, but that pages which it shares are divided (PSS)."""
        return self._memory_mb("smaps_rollup", "Pss")

    def _memory_mb(self, file: str, field: str) -> float:
        lines = Path(f"/proc/{self._process.pid}/{file}").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / _KIB_A_MB

    async def health(self) -> str:
        """The status and the text of /healthz, as `200 it leads`; or why there is no answer."""
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{self._port}/healthz") as answer,
            ):
                return f"{answer.status} {await answer.text()}"
        except aiohttp.ClientError as error:
            return f"no answer: {error}"

    async def until_healthy(self, wanted: str, *, seconds: float = 120.0) -> None:
        """Wait until its health begins so: `200` once its caches are full, `200 it leads` once it also leads.

        Raises:
            RuntimeError: it ended.
            TimeoutError: not within so many seconds; the text has what it said last.
        """
        deadline = monotonic() + seconds
        while not (said := await self.health()).startswith(wanted):
            if self.returncode is not None:
                raise RuntimeError(f"the operator ended with status {self.returncode}; its log says why")
            if monotonic() > deadline:
                raise TimeoutError(f"the operator's health is not {wanted!r} within {seconds:g} s, but {said!r}")
            await asyncio.sleep(_POLL_SECONDS)

    def terminate(self) -> None:
        """SIGTERM: it ends as a pod that is deleted."""
        self._process.terminate()

    async def until_ended(self, seconds: float) -> None:
        """Wait until it has ended.

        Raises:
            TimeoutError: not within so many seconds: the kubelet would have killed it.
        """
        async with asyncio.timeout(seconds):
            await self._process.wait()

    async def kill(self) -> None:
        """SIGKILL, where it still runs: it ends in the middle of whatever it does."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def end(self) -> None:
        """End it as a pod that is deleted, and kill it where that takes long."""
        if self._process.returncode is None:
            self.terminate()
            with contextlib.suppress(TimeoutError):
                await self.until_ended(15)
            await self.kill()


@contextlib.asynccontextmanager
async def leading(
    kubeconfig: Path, log: Path, settings: Mapping[str, str], module: Sequence[str] = ("gpudask",)
) -> AsyncIterator[OperatorProcess]:
    """An operator that leads, until the block ends; see `OperatorProcess.start`."""
    operator = await OperatorProcess.start(kubeconfig, log, settings, module)
    try:
        await operator.until_healthy("200 it leads")
        yield operator
    finally:
        await operator.end()
