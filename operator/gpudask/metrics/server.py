"""The port on which the metrics are read: HTTP or HTTPS, with or without a bearer token.

It is not the probes' port: who may reach that one need not see the clusters of all tenants. Files of a certificate and
of a token are read again when they change, as cert-manager renews them.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from aiohttp import web

from gpudask.metrics.exposition import CONTENT_TYPE
from gpudask.metrics.operator import Metrics
from gpudask.metrics.readers import Readers

_LOG = logging.getLogger(__name__)
PATH = "/metrics"
_CERTIFICATE, _KEY = "tls.crt", "tls.key"  # as in a Secret of type kubernetes.io/tls
_LOOK_SECONDS = 10.0  # between two looks at the certificate's files
_TOKEN_BYTES = 4096
_READ_SECONDS = 30.0  # for one reading: who takes longer does not read
_GZIP = 16 + zlib.MAX_WBITS  # with gzip's header
_GZIP_LEVEL = 1  # text of labels becomes a twentieth; higher levels take several times as long for little


@dataclass(frozen=True, slots=True)
class Options:
    """`port`: 0 is any free one. `tls`: a directory with tls.crt and tls.key; empty: plain HTTP.

    `token`: a file with the token that a reader has to send; empty: nobody has to.
    """

    port: int
    tls: str = ""
    token: str = ""


class MetricsServer:
    """Serves `metrics` while `run` runs. By `clock`, in seconds, readers have their rate."""

    def __init__(
        self,
        metrics: Metrics,
        options: Options,
        *,
        look_seconds: float = _LOOK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._options = options
        self._look_seconds = look_seconds
        self._clock = clock
        self._certificate = _Certificate(Path(options.tls)) if options.tls else None
        self._readers = Readers()
        self._runner: web.AppRunner | None = None
        self.listens = asyncio.Event()

    @property
    def port(self) -> int:
        """The port on which it listens; by IPv4, where 0 was asked for."""
        assert self._runner is not None, "it listens while it runs"
        return int(next(address[1] for address in self._runner.addresses if ":" not in address[0]))

    async def run(self) -> None:
        """Listen until cancelled. Without a certificate that can be read nothing is served, and never by plain HTTP.

        Raises:
            OSError: the port is in use.
        """
        while self._certificate is not None and not self._certificate.refresh():  # noqa: ASYNC110 - files set no event
            await asyncio.sleep(self._look_seconds)
        app = web.Application()
        app.add_routes([web.get(PATH, self._read, allow_head=False)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        try:
            await self._runner.setup()
            context = self._certificate.context if self._certificate is not None else None
            await web.TCPSite(self._runner, None, self._options.port, ssl_context=context).start()
            self.listens.set()
            while True:
                await asyncio.sleep(self._look_seconds)
                if self._certificate is not None:
                    self._certificate.refresh()
        finally:
            self.listens.clear()
            await self._runner.cleanup()

    async def _read(self, request: web.Request) -> web.StreamResponse:
        if self._options.token and not _is_authorized(request, Path(self._options.token)):
            return web.Response(status=HTTPStatus.UNAUTHORIZED, headers={"WWW-Authenticate": "Bearer"})
        peer = request.remote or ""
        if not self._readers.admit(peer, self._clock()):
            return web.Response(status=HTTPStatus.TOO_MANY_REQUESTS, headers={"Retry-After": "5"})
        try:
            async with asyncio.timeout(_READ_SECONDS):
                return await self._send(request)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()  # half of an answer is no answer
            return web.Response(status=HTTPStatus.REQUEST_TIMEOUT)
        finally:
            self._readers.release(peer)

    async def _send(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        packer = None
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            response.headers["Content-Encoding"] = "gzip"
            packer = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP)
        await response.prepare(request)
        for piece in self._metrics.exposition():
            if data := packer.compress(piece) if packer is not None else piece:
                await response.write(data)
            await asyncio.sleep(0)  # clusters come in between
        await response.write_eof(packer.flush() if packer is not None else b"")
        return response


def _is_authorized(request: web.Request, file: Path) -> bool:
    """Whether the request carries the token of `file`; nobody is where there is none."""
    scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
    try:
        with file.open("rb") as opened:
            token = opened.read(_TOKEN_BYTES).strip()
    except OSError as error:
        _LOG.warning("the token of the metrics: %s; nobody can read them", error)
        return False
    as_sent = sent.strip().encode("utf-8", "surrogateescape")  # so aiohttp has read bytes that are no UTF-8
    return bool(token) and scheme.lower() == "bearer" and hmac.compare_digest(as_sent, token)


class _Certificate:
    """A certificate and its key in a directory; `context` has those that were last read."""

    def __init__(self, directory: Path) -> None:
        self._files = (directory / _CERTIFICATE, directory / _KEY)
        self._seen: object = None
        self._is_loaded = False
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def refresh(self) -> bool:
        """Read the files if they changed; whether there is a certificate, be it the one before."""
        try:
            seen = [(stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in (file.stat() for file in self._files)]
            if seen != self._seen:
                self._seen = seen
                self.context.load_cert_chain(*self._files)  # connections that are made from now on use it
                self._is_loaded = True
        except (OSError, ssl.SSLError) as error:
            kept = "; the one before is kept" if self._is_loaded else "; nothing is served until it can be read"
            _LOG.warning("the certificate of the metrics, %s: %s%s", self._files[0].parent, error, kept)
            self._seen = None
        return self._is_loaded
