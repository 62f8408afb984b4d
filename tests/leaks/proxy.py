"""A proxy before the API server, on loopback: it loses the answer to one creation, or passes nothing on any more.

For a cut network bytes are enough. To know a creation it has to read, so it speaks TLS with a certificate of the
cluster's own authority; each request's own token is handed on.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

from local.control_plane.pki import Identity, Pki
from tests.leaks.ways import Fault

LOOPBACK = "127.0.0.1"
_CHUNK_BYTES = 64 * 1024
_CREATION = re.compile(rb"POST /apis/gpudask\.dev/[^/ ]+/namespaces/[^/ ]+/gpudaskclusters(?:\?(\S*))? ")


@dataclass(frozen=True)
class Tls:
    """TLS of both sides: as which server it answers, and whom it trusts onward."""

    server: ssl.SSLContext
    onward: ssl.SSLContext

    @classmethod
    def of(cls, pki: Pki) -> Self:
        """By a certificate for loopback of the cluster's own authority."""
        identity = Identity("leaks-proxy", "kube-apiserver", hosts=(LOOPBACK, "localhost"))
        pki.ensure(identity)
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.load_cert_chain(pki.certificate(identity.file), pki.key(identity.file))
        return cls(server, ssl.create_default_context(cafile=pki.authority))


@dataclass
class Proxy:
    """A proxy to `to`, a host and a port.

    Attributes:
        to: the API server.
        loses: ANSWER_LOST or ANSWER_HELD, of the first creation; else what comes is passed on as bytes.
        tls: of both sides, where it has to read.
        port: where it listens.
        lost: set once the API server has answered that creation.
    """

    to: tuple[str, int]
    loses: Fault = Fault.NONE
    tls: Tls | None = None
    port: int = 0
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    _passes: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Self]:
        """It listens, until the block ends; the ends of what was cut stay open until then."""
        self._passes.set()
        server = await asyncio.start_server(self._serve, LOOPBACK, 0, ssl=self.tls.server if self.tls else None)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Pass nothing on any more, and tell nobody: as if a cable were out."""
        self._passes.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):  # the API server is away; or this proxy ends
                await self._passes.wait()
                await self._join(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward = await asyncio.open_connection(*self.to, ssl=self.tls.onward if self.tls else None)
        exchange = _Exchange(self)
        ways = {
            asyncio.ensure_future(self._pump(reader, onward[1], exchange.asks)),
            asyncio.ensure_future(self._pump(onward[0], writer, exchange.answers)),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            if exchange.is_silent:
                await asyncio.Event().wait()  # the answer never comes
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            onward[1].close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, may_pass: Callable[[bytes], bool]
    ) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            if not may_pass(chunk):
                return
            await self._passes.wait()
            writer.write(chunk)
            await writer.drain()
        await self._passes.wait()  # nor does the end of a connection pass


@dataclass
class _Exchange:
    """The requests and answers of one connection: the client sends no request before it has the last one's answer."""

    proxy: Proxy
    is_creation: bool = False
    is_silent: bool = False

    def asks(self, chunk: bytes) -> bool:
        """Look at what the client sends: it goes on in any case."""
        if self.proxy.loses is not Fault.NONE and not self.proxy.lost.is_set():
            found = _CREATION.match(chunk)
            if found and b"dryRun" not in (found[1] or b""):
                self.is_creation = True
        return True

    def answers(self, _chunk: bytes) -> bool:
        """Whether what the server sends goes on."""
        if not self.is_creation or self.proxy.lost.is_set():
            return True
        self.is_silent = self.proxy.loses is Fault.ANSWER_HELD
        self.proxy.lost.set()
        return False
