"""The port on which the metrics are read: HTTP or HTTPS, with or without a bearer token.

It is not the probes' port: who may reach that one need not see the clusters of all tenants. Files of a certificate and
of a token are read again when they change, as cert-manager renews them.

Who may read now is bounded for each address, so that one who never pauses keeps no Prometheus out:

    n                     addresses that are told apart now, at most ADDRESSES, and one more for all others
    one address' rate     _PER_SECOND / n: together they cost what one alone may
    one address at once   _AT_ONCE

An address keeps its place while it reads once a minute. Those that find none share the last place: so a table of
addresses, which anybody can have many of, stays small, and who was there before them reads on.

While they are served the lag of the event loop is measured, too: no other part of the operator could count that.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from aiohttp import web

from gpudask.clients.flow_control import RateLimiter
from gpudask.metrics.exposition import CONTENT_TYPE
from gpudask.metrics.operator import Metrics

_LOG = logging.getLogger(__name__)
PATH = "/metrics"
_CERTIFICATE, _KEY = "tls.crt", "tls.key"  # as in a Secret of type kubernetes.io/tls
_LOOK_SECONDS = 10.0  # between two looks at the certificate's files
_TOKEN_BYTES = 4096
_READ_SECONDS = 30.0  # for one reading: who takes longer does not read
_GZIP = 16 + zlib.MAX_WBITS  # with gzip's header
_GZIP_LEVEL = 1  # text of labels becomes a twentieth; higher levels take several times as long for little
ADDRESSES = 16  # so one that reads every ten seconds is within its rate, whatever the others do
# With a thousand clusters a reading takes a tenth of a second of the event loop.
_PER_SECOND, _BURST = 2.0, 4.0
_AT_ONCE = 2  # of one address: a slow reader costs a connection, and no time
_REMEMBERED_SECONDS = 60.0  # after a reading: longer than Prometheus waits for the next one, as a rule
_OTHERS = ""
_LAG_SECONDS = 0.5  # between two measurements of the lag
_LAGS_KEPT = 120  # a minute of them, since the metrics are read a few times a minute


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


@dataclass(slots=True)
class _Place:
    limiter: RateLimiter = field(default_factory=lambda: RateLimiter(_PER_SECOND, _BURST))
    until: float = 0.0  # it is remembered, where nobody reads


class Readers:
    """The addresses that read, or have read not long ago. No I/O here."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._active: Counter[str] = Counter()  # readings under way by place
        self._others: Counter[str] = Counter()  # of those at the last place, by address

    @property
    def remembered(self) -> AbstractSet[str]:
        """The addresses that are told apart; an empty one stands for all others."""
        return self._places.keys()

    def admit(self, address: str, now: float) -> bool:
        """Whether `address` may read now, by any one clock in seconds; if so, it reads until it is released."""
        self._places = {key: place for key, place in self._places.items() if place.until > now or self._active[key]}
        key = self._key(address)
        place = self._places.get(key) or _Place()
        if self._active[key] >= _AT_ONCE or place.limiter.available_at(now) > now:
            return False
        self._places[key] = place
        place.limiter.reserve(now, tokens=len(self._places))
        place.until = max(now + _REMEMBERED_SECONDS, place.limiter.full_at)
        self._active[key] += 1
        if key == _OTHERS:
            self._others[address] += 1
        return True

    def release(self, address: str) -> None:
        """Note that a reading of `address` has ended."""
        key = _OTHERS if self._others[address] else address
        self._others -= Counter({address: 1})  # and keeps none that does not read
        self._active -= Counter({key: 1})

    def _key(self, address: str) -> str:
        has_room = len(self._places.keys() - {_OTHERS}) < ADDRESSES
        return address if address in self._places or has_room else _OTHERS


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


class EventLoopLag:
    """How late the event loop comes to what is due, since something else held it: measured while `run` runs."""

    def __init__(self) -> None:
        self._late: deque[float] = deque(maxlen=_LAGS_KEPT)

    @property
    def seconds(self) -> float:
        """The most by which the event loop was late in the last minute."""
        return max(self._late, default=0.0)

    async def run(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_SECONDS
            await asyncio.sleep(_LAG_SECONDS)
            self._late.append(max(0.0, loop.time() - due))
