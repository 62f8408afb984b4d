"""HTTP and websockets to one API server, with credentials that are read again when the server refuses them.

Tokens end: at EKS, GKE and AKS after an hour. kr8s' own session answers a 401 by closing every connection that it
holds, and the ports that are forwarded with them; and it takes each 403 for a 401. Here a websocket has a client of its
own, which nothing but its own end closes, and requests share one, which is replaced without breaking what runs on it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import httpx_ws

from gpudask.kubecluster.kube.credentials import Credentials
from gpudask.kubecluster.timing import Timing

_UNAUTHORIZED = 401


class Session:
    """One API server, as whoever the credentials say."""

    def __init__(self, credentials: Credentials, read: Callable[[], Awaitable[Credentials]], timing: Timing) -> None:
        self.timing = timing
        self._pool = _Pool(credentials, timing)
        self._read = read
        self._reading = asyncio.Lock()

    @classmethod
    async def open(cls, read: Callable[[], Awaitable[Credentials]], timing: Timing) -> Session:
        """A session with what `read` gives now, and again whenever the server answers 401; nothing is asked yet."""
        return cls(await read(), read, timing)

    @property
    def address(self) -> str:
        """The server's URL."""
        return self._pool.credentials.server

    def reason(self, error: Exception) -> str:
        """The message of an error of the connection, or the meaning of its kind where it has none."""
        if isinstance(error, httpx.ConnectTimeout):
            return f"{self.address} does not answer: no connection within {self.timing.connect_seconds:g} s"
        if isinstance(error, httpx.TimeoutException):
            return f"{self.address} did not answer within {self.timing.answer_seconds:g} s"
        return f"{self.address}: {str(error) or type(error).__name__}"

    @asynccontextmanager
    async def response(
        self, method: str, path: str, *, silence_seconds: float | None = 0, renews: bool = True, **options: Any
    ) -> AsyncIterator[httpx.Response]:
        """The answer to one request, whatever its status, its body not yet read.

        Args:
            method: of HTTP.
            path: on the server.
            silence_seconds: how long the server may be silent before and within its answer; 0: 30 s, None: for ever.
            renews: whether credentials that are refused are read again. What nobody waits for must not: it may start a
                plugin that opens a browser.
            options: of httpx, such as `params`, `headers`, `content`.

        Raises:
            httpx.HTTPError: no answer: no connection within 10 s, or silence.
            KubeClusterError: the credentials were refused, and could not be read again.
        """
        options["timeout"] = _limits(self.timing, silence_seconds)
        async with AsyncExitStack() as stack:
            pool = self._pool
            answer = await stack.enter_async_context(pool.request(method, path, options))
            if answer.status_code == _UNAUTHORIZED and renews:
                await stack.aclose()
                pool = await self._renewed(pool)
                answer = await stack.enter_async_context(pool.request(method, path, options))
            yield answer

    @asynccontextmanager
    async def websocket(
        self, path: str, *, params: dict[str, str], limit_seconds: float
    ) -> AsyncIterator[httpx_ws.AsyncWebSocketSession]:
        """A websocket on a connection of its own, opened as whoever the credentials say now.

        What is raised inside the block comes out in an ExceptionGroup: catch it there.

        Raises:
            TimeoutError: it was not open within `limit_seconds`.
            httpx.HTTPError: no connection.
            httpx_ws.WebSocketUpgradeError: the server answered no.
            KubeClusterError: the credentials were refused, and could not be read again.
        """
        async with AsyncExitStack() as stack:

            async def opened(credentials: Credentials) -> httpx_ws.AsyncWebSocketSession:
                async with asyncio.timeout(limit_seconds):
                    return await stack.enter_async_context(_websocket(credentials, self.timing, path, params))

            pool = self._pool
            try:
                socket = await opened(pool.credentials)
            except httpx_ws.WebSocketUpgradeError as error:
                if error.response.status_code != _UNAUTHORIZED:
                    raise
                socket = await opened((await self._renewed(pool)).credentials)
            yield socket

    async def _renewed(self, refused: _Pool) -> _Pool:
        async with self._reading:
            if self._pool is refused:  # else another request's 401 was answered meanwhile
                self._pool = _Pool(await self._read(), self.timing)
                await refused.retire()
            return self._pool


class _Pool:
    """The connections that requests share as long as the credentials hold."""

    def __init__(self, credentials: Credentials, timing: Timing) -> None:
        self.credentials = credentials
        self._client = _client(credentials, timing)
        self._open_requests = 0
        self._is_retired = False

    @asynccontextmanager
    async def request(self, method: str, path: str, options: dict[str, Any]) -> AsyncIterator[httpx.Response]:
        """The answer to one request."""
        self._open_requests += 1
        try:
            async with self._client.stream(
                method, path, follow_redirects=True, extensions=_extensions(self.credentials), **options
            ) as response:
                yield response
        finally:
            self._open_requests -= 1
            await self._close_if_done()

    async def retire(self) -> None:
        """Close the connections once the last that asks has its answer."""
        self._is_retired = True
        await self._close_if_done()

    async def _close_if_done(self) -> None:
        if self._is_retired and not self._open_requests:
            await self._client.aclose()


@asynccontextmanager
async def _websocket(
    credentials: Credentials, timing: Timing, path: str, params: dict[str, str]
) -> AsyncIterator[httpx_ws.AsyncWebSocketSession]:
    async with _client(credentials, timing) as client:
        opening: AbstractAsyncContextManager[httpx_ws.AsyncWebSocketSession] = httpx_ws.aconnect_ws(
            path, client, params=params, extensions=_extensions(credentials)
        )
        async with opening as socket:
            yield socket


def _client(credentials: Credentials, timing: Timing) -> httpx.AsyncClient:
    named = [("User-Agent", "gpudask"), ("Content-Type", "application/json"), *credentials.headers]
    if credentials.token:
        named.append(("Authorization", f"Bearer {credentials.token}"))
    # As bytes: httpx refuses names of users and groups that are not ASCII.
    headers = [(name.encode(), value.encode()) for name, value in named]
    without_proxy = not credentials.proxy and is_direct(credentials.server, os.environ)
    return httpx.AsyncClient(
        base_url=credentials.server,
        headers=headers,
        verify=credentials.tls,
        proxy=credentials.proxy,
        mounts={f"all://{httpx.URL(credentials.server).netloc.decode()}": None} if without_proxy else None,
        timeout=_limits(timing),
    )


def _limits(timing: Timing, silence_seconds: float | None = 0) -> httpx.Timeout:
    read = timing.answer_seconds if silence_seconds == 0 else silence_seconds
    return httpx.Timeout(timing.answer_seconds, connect=timing.connect_seconds, read=read)


def _extensions(credentials: Credentials) -> dict[str, Any]:
    return {"sni_hostname": credentials.tls_name} if credentials.tls_name else {}


def is_direct(server: str, environment: Mapping[str, str]) -> bool:
    """True if the address of the URL `server` lies in a range of NO_PROXY or no_proxy.

    kubectl and most tools know ranges, such as 10.0.0.0/8, and httpx does not: it knows names.
    """
    try:
        address = ipaddress.ip_address(urlsplit(server).hostname or "")
    except ValueError:  # a name
        return False
    listed = [entry for name in ("NO_PROXY", "no_proxy") for entry in environment.get(name, "").split(",")]
    return any(address in network for entry in listed if (network := _network(entry.strip())))


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(entry, strict=False) if "/" in entry else None
    except ValueError:
        return None
