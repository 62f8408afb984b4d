"""A proxy between the cluster's pods and the API server: it answers itself, loses answers, or keeps watches back.

All that pods ask of `10.96.0.1:443` goes through it, so the operator is installed as users do and knows nothing of it.
The API server's other clients, kubelets and controllers, are not concerned. It speaks TLS with a certificate of the
cluster's own authority, and hands each request's own credentials on.
"""

from __future__ import annotations


import asyncio
import json
import random
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import aiohttp
from aiohttp import web

from local.clusters.cluster import Cluster
from local.control_plane.pki import Identity, Pki

_EXPIRED = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
_REASONS = {429: "TooManyRequests", 500: "InternalError"}
_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
_SERVICE = "10.96.0.1"
_NOT_HANDED_ON = frozenset({"host", "connection", "content-length", "transfer-encoding"})


@dataclass
class Weather:
    """Faults of the way to the API server. Shares are of requests: 0 none, 1 all.

    `refused`: a status, and the share that is answered with it. `losing`: the share of writes that are done and not
    answered. `slow_seconds`: each request waits for so long first. `behind`: watches tell nothing until it is over.
    `expired`: new watches end with 410. `clock_ahead`: by so many seconds the answers' `Date` is ahead.
    """

    refused: tuple[int, float] = (0, 0.0)
    losing: float = 0.0
    slow_seconds: float = 0.0
    behind: bool = False
    expired: bool = False
    clock_ahead: float = 0.0


@dataclass
class Counts:
    """Counts of what it did."""

    requests: int = 0
    refused: int = 0
    lost: int = 0
    expired: int = 0


@dataclass
class Proxy:
    """A proxy that listens at `port` of the first node's address."""

    server: str
    random: random.Random
    port: int = 0
    weather: Weather = field(default_factory=Weather)
    counts: Counts = field(default_factory=Counts)
    _watches: dict[web.StreamResponse, asyncio.Event] = field(default_factory=dict)
    _transports: set[asyncio.Transport] = field(default_factory=set)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    @classmethod
    @contextmanager
    def listening(cls, cluster: Cluster, seed: int) -> Iterator[Proxy]:
        """A proxy in a thread of its own, until the block ends."""
        plane = cluster.control_plane
        made = cls(plane.endpoints.server, random.Random(seed))  # noqa: S311 - no secret
        thread = threading.Thread(target=made._loop.run_forever, daemon=True)
        thread.start()
        runner = made._do(made._start(plane.pki, plane.endpoints.address))
        try:
            yield made
        finally:
            made._do(made._stop(runner))
            made._loop.call_soon_threadsafe(made._loop.stop)
            thread.join(60)

    def expire(self) -> int:
        """End every watch with 410; how many those were."""
        return int(self._do(self._expire()))

    def cut(self) -> int:
        """Break every connection; how many those were."""
        return int(self._do(self._cut()))

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _start(self, pki: Pki, address: str) -> web.AppRunner:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=pki.authority), limit=0),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        )
        identity = Identity("chaos-proxy", "kube-apiserver", hosts=(*_NAMES, _SERVICE, address))
        pki.ensure(identity)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(pki.certificate(identity.file), pki.key(identity.file))
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._pass)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, address, 0, ssl_context=tls)
        await site.start()
        self.port = runner.addresses[0][1]
        return runner

    async def _stop(self, runner: web.AppRunner) -> None:
        await self._cut()
        await self._session.close()
        await runner.cleanup()

    async def _expire(self) -> int:
        watches = list(self._watches.items())
        for response, end in watches:
            end.set()
            with suppress(ConnectionError, RuntimeError):  # whoever watched has gone
                await response.write(json.dumps(_EXPIRED).encode() + b"\n")
        self.counts.expired += len(watches)
        return len(watches)

    async def _cut(self) -> int:
        cut = list(self._transports)
        for end in self._watches.values():
            end.set()
        for transport in cut:
            transport.abort()
        return len(cut)

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None and request.transport not in self._transports:
            self._transports = {each for each in self._transports if not each.is_closing()} | {request.transport}
        self.counts.requests += 1
        weather, watches = self.weather, "watch=true" in request.query_string
        if weather.slow_seconds:
            await asyncio.sleep(weather.slow_seconds)
        status, share = weather.refused
        if self.random.random() < share:
            self.counts.refused += 1
            return _refusal(status)
        loses = request.method not in ("GET", "HEAD") and self.random.random() < weather.losing
        try:
            async with self._session.request(
                request.method,
                self.server + request.raw_path,
                headers={key: value for key, value in request.headers.items() if key.lower() not in _NOT_HANDED_ON},
                data=await request.read() or None,
                skip_auto_headers=("Accept-Encoding",),
            ) as answer:
                if loses:
                    await answer.read()
                    self.counts.lost += 1
                    return _hung_up(request)
                if watches and answer.status == 200:
                    return await self._relay(request, answer)
                body = await answer.read()
                return web.Response(status=answer.status, body=body, headers=self._headers(answer))
        except (aiohttp.ClientError, OSError):  # as if there were no proxy: the connection ends
            return _hung_up(request)

    async def _relay(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=self._headers(answer))
        await response.prepare(request)
        if self.weather.expired:
            self.counts.expired += 1
            await response.write(json.dumps(_EXPIRED).encode() + b"\n")
            return response
        end = self._watches[response] = asyncio.Event()
        ended = asyncio.create_task(end.wait())
        reading: asyncio.Task[bytes] | None = None
        try:
            while not end.is_set():
                reading = asyncio.create_task(answer.content.readany())
                await asyncio.wait({reading, ended}, return_when=asyncio.FIRST_COMPLETED)
                if end.is_set() or not (chunk := reading.result()):
                    break
                while self.weather.behind and not end.is_set():  # noqa: ASYNC110 - another thread ends it
                    await asyncio.sleep(0.1)
                await response.write(chunk)
        finally:
            ended.cancel()
            if reading is not None:
                reading.cancel()
            del self._watches[response]
        return response

    def _headers(self, answer: aiohttp.ClientResponse) -> dict[str, str]:
        kept = ("Content-Type", "Content-Encoding", "Retry-After", "Audit-Id", "Date")
        headers = {name: answer.headers[name] for name in kept if name in answer.headers}
        if self.weather.clock_ahead:
            headers["Date"] = format_datetime(
                datetime.now(UTC) + timedelta(seconds=self.weather.clock_ahead), usegmt=True
            )
        return headers


def _hung_up(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.close()
    return web.Response(status=502)  # which nobody hears any more


def _refusal(code: int) -> web.Response:
    reason = _REASONS[code]
    status = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason}
    return web.json_response(status, status=code, headers={"Retry-After": "1"} if code == 429 else {})
