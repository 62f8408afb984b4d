"""The bare client as a process of its own, as the operator is one."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterable
from pathlib import Path

from benchmarks.scale import bare
from benchmarks.scale.manifests import Json, creation


class BareClient:
    """Prepared requests that wait for the start."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def prepare(cls, kubeconfig: Path, scratch: Path, lines: Iterable[str]) -> BareClient:
        """Start the process; nothing is sent yet."""
        prepared = scratch / "requests"
        with prepared.open("w") as file:
            file.writelines(lines)
        command = (sys.executable, "-m", "benchmarks.scale.bare", str(kubeconfig), str(prepared))
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        client = cls(process)
        await client._line()
        prepared.unlink()
        return client

    async def send(self) -> float:
        """Send all of them; in how many seconds.

        Raises:
            RuntimeError: a request was refused; the process said which.
        """
        assert self._process.stdin is not None, "started with a pipe"
        self._process.stdin.write(b"\n")
        seconds = float(await self._line())
        await self._process.wait()
        return seconds

    async def _line(self) -> str:
        assert self._process.stdout is not None, "started with a pipe"
        text = (await self._process.stdout.readline()).decode()
        if not text:
            raise RuntimeError(f"the bare client ended with status {await self._process.wait()}")
        return text


def creations(bodies: Iterable[Json]) -> Iterable[str]:
    """The requests that create these objects."""
    for body in bodies:
        path, content = creation(body)
        yield bare.line("POST", path, content)
