"""One of the operators, as a process that can be killed, stopped and weighed."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp

from benchmarks.ha import chart
from benchmarks.scale.stage import Stage
from benchmarks.scale.waiting import until
from local.ports import free_ports

Json = dict[str, Any]
_KIB_A_MB = 1000 * 1000 / 1024
_START_SECONDS = 120


@dataclass(frozen=True)
class Memory:
    """What a process holds, in MB of 10^6 bytes. `proportional`: pages that it shares are divided (PSS)."""

    resident: float
    proportional: float


class Replica:
    """A running operator. `identity`: as it signs the Lease; `credential`: as the audit log knows it."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, identity: str, credential: str) -> None:
        self._process = process
        self._port = port
        self.identity = identity
        self.credential = credential

    @classmethod
    async def start(cls, stage: Stage, bodies: Sequence[Json]) -> Self:
        """Start one as a new pod of the chart would, and wait until its caches are full."""
        pod = {"uid": str(uuid.uuid4())}
        pod["name"] = f"gpudask-{pod['uid'][:5]}"
        kubeconfig = stage.scratch / f"{pod['name']}.kubeconfig"
        credential = await chart.log_in(stage.api, bodies, stage.server.kubeconfig, kubeconfig)
        given = chart.environment(bodies, pod)
        # Imports find their bytecode, as they do in the image.
        left_out = ("GPUDASK_", "KUBERNETES_SERVICE_", "PYTHONDONTWRITEBYTECODE")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(left_out)}
        port = free_ports(1)[0]
        own = {"KUBECONFIG": str(kubeconfig), "GPUDASK_HEALTH_PORT": str(port)}
        with (stage.scratch / f"{pod['name']}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gpudask"), env=kept | given | own, stdout=log, stderr=log
            )
        replica = cls(process, port, given["GPUDASK_IDENTITY"], credential)
        try:
            await until(replica.ready, f"{pod['name']} is ready", seconds=_START_SECONDS)
        except BaseException:
            await replica.kill()
            raise
        return replica

    async def ready(self) -> bool:
        """Whether it leads, or could."""
        assert self._process.returncode is None, f"{self.identity} ended; its log says why"
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{self._port}/healthz") as answer,
            ):
                return answer.ok
        except aiohttp.ClientError:
            return False

    def memory(self) -> Memory:
        """What it holds now."""
        lines = Path(f"/proc/{self._process.pid}/smaps_rollup").read_text().splitlines()
        kib = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
        return Memory(kib["Rss"] / _KIB_A_MB, kib["Pss"] / _KIB_A_MB)

    async def kill(self) -> None:
        """SIGKILL: it ends in the middle of whatever it does."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def stop(self) -> None:
        """SIGTERM: it ends as a pod that is deleted."""
        self._process.terminate()

    async def stopped(self, seconds: float) -> None:
        """Wait until it has ended.

        Raises:
            TimeoutError: the kubelet would have killed it.
        """
        async with asyncio.timeout(seconds):
            await self._process.wait()
