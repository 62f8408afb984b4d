"""The floor: a bare client that sends prepared requests, so many at once, and reads the answers no further.

It is a process of its own, as the operator is one, and imports nothing of ours. `python -m
benchmarks.testbed.bare_client KUBECONFIG FILE` reads lines of `METHOD PATH CONTENT-TYPE BODY`, says `ready`, waits for
a line of input, sends all, and says how many seconds that took.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import yaml

CONCURRENCY = 64
"""Requests in flight: as many as the operator allows itself (clients/kubernetes.py)."""
JSON, MERGE_PATCH = "application/json", "application/merge-patch+json"


def line(method: str, path: str, body: Any, content_type: str = JSON) -> str:
    """One request, as this program reads it."""
    return f"{method} {path} {content_type} {json.dumps(body)}\n"


async def _send(session: aiohttp.ClientSession, server: str, requests: Iterator[list[bytes]]) -> None:
    for method, path, content_type, body in requests:
        headers = {"Content-Type": content_type.decode()}
        async with session.request(method.decode(), f"{server}{path.decode()}", data=body, headers=headers) as response:
            text = await response.read()
            if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                raise SystemExit(f"{method.decode()} {path.decode()}: {response.status} {text[:300].decode()}")


async def _run(kubeconfig: Path, lines: Iterable[bytes]) -> None:
    server, context = _connection(kubeconfig)
    requests = iter([text.rstrip(b"\n").split(b" ", 3) for text in lines])
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context, limit=0)) as session:
        async with session.get(f"{server}/version") as response:
            await response.read()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENCY):
                group.create_task(_send(session, server, requests))
        print(time.perf_counter() - began, flush=True)


def _connection(kubeconfig: Path) -> tuple[str, ssl.SSLContext]:
    """The server's URL, and its authority with the client's certificate, of a kubeconfig that `local` wrote."""
    content = yaml.safe_load(kubeconfig.read_text())
    cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    with tempfile.NamedTemporaryFile() as both:
        both.write(base64.b64decode(user["client-certificate-data"]))
        both.write(base64.b64decode(user["client-key-data"]))
        both.flush()
        context.load_cert_chain(both.name)
    return str(cluster["server"]), context


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
        command = (sys.executable, "-m", "benchmarks.testbed.bare_client", str(kubeconfig), str(prepared))
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


if __name__ == "__main__":
    with Path(sys.argv[2]).open("rb") as prepared:
        asyncio.run(_run(Path(sys.argv[1]), prepared))
