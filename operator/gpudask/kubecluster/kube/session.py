"""HTTP and websockets to one API server, with credentials that are read again when the server refuses them.

Tokens end: at EKS, GKE and AKS after an hour. A websocket has a client of its own, which nothing but its own end
closes, and requests share one, which is replaced without breaking what runs on it.

Reading them again may start a credential plugin, which may ask a person. So it goes on when the one who caused it waits
no longer, all who need it share it, and work in the background does not start it as it likes: see `Purpose`.
"""

from __future__ import annotations

import asyncio
import email.utils
import ipaddress
import logging
import os
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import Enum, auto
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.kube.credentials import Credentials, Login
from gpudask.kubecluster.timing import Timing

if TYPE_CHECKING:
    import httpx_ws

logger = logging.getLogger(__name__)

_UNAUTHORIZED = 401


class Purpose(Enum):
    """The reason of a request, which says how credentials that have ended may be renewed for it.

    Attributes:
        FOREGROUND: somebody waits for the answer. A plugin may ask.
        UPKEEP: keeps what the program has, such as a hold or a forwarded connection. A plugin is started, but told not
            to ask, and ever more seldom; one that always asks is not.
        POLLING: could be left out. No plugin is started.
    """

    FOREGROUND = auto()
    UPKEEP = auto()
    POLLING = auto()


_purpose: ContextVar[Purpose] = ContextVar("purpose", default=Purpose.FOREGROUND)


@contextmanager
def requests_for(purpose: Purpose) -> Iterator[None]:
    """Let the requests inside the block, and in tasks that begin in it, be for `purpose`."""
    token = _purpose.set(purpose)
    try:
        yield
    finally:
        _purpose.reset(token)


class Session:
    """One API server, as whoever the credentials say.

    Args:
        credentials: as first read.
        login: gives them again.
        timing: intervals and deadlines.

    Attributes:
        login: it has the context that is kept; another process may connect as the same.
    """

    def __init__(self, credentials: Credentials, login: Login, timing: Timing) -> None:
        self.timing = timing
        self.login = login
        self._pool = _Pool(credentials, timing)
        self._renewal: _Renewal | None = None
        self._upkeep = _Upkeep(timing)

    @classmethod
    async def open(cls, login: Login, timing: Timing) -> Session:
        """A session with what `login` gives now, and again whenever the server answers 401; nothing is asked yet."""
        return cls(await login.read(), login, timing)

    @property
    def address(self) -> str:
        """The server's URL."""
        return self._pool.credentials.server

    def copy(self) -> Session:
        """The same server and credentials with connections of its own, for another event loop; nothing is read."""
        return Session(self._pool.credentials, self.login, self.timing)

    async def close(self) -> None:
        """Close the connections, each when its request ends; a later request makes new ones."""
        used, self._pool = self._pool, _Pool(self._pool.credentials, self.timing)
        await used.retire()

    def reason(self, error: Exception) -> str:
        """The message of an error of the connection, or the meaning of its kind where it has none."""
        if isinstance(error, httpx.ConnectTimeout):
            return f"{self.address} does not answer: no connection within {self.timing.connect_seconds:g} s"
        if isinstance(error, httpx.TimeoutException):
            return f"{self.address} did not answer within {self.timing.answer_seconds:g} s"
        return f"{self.address}: {str(error) or type(error).__name__}"

    @asynccontextmanager
    async def response(
        self, method: str, path: str, *, silence_seconds: float | None = 0, **options: Any
    ) -> AsyncIterator[httpx.Response]:
        """The answer to one request, whatever its status, its body not yet read.

        Args:
            method: of HTTP.
            path: on the server.
            silence_seconds: how long the server may be silent before and within its answer; 0: 30 s, None: for ever.
            options: of httpx, such as `params`, `headers`, `content`.

        Raises:
            httpx.HTTPError: no answer: no connection within 10 s, or silence.
            KubeClusterError: the credentials were refused, and could not be read again.
        """
        options["timeout"] = _limits(self.timing, silence_seconds)
        async with AsyncExitStack() as stack:
            yield await self._answer(stack, method, path, options)

    async def _answer(self, stack: AsyncExitStack, method: str, path: str, options: dict[str, Any]) -> httpx.Response:
        pool, is_renewed, tries = await self._current(), False, 0
        while True:
            try:
                answer = await stack.enter_async_context(pool.request(method, path, options))
            except (httpx.TransportError, ssl.SSLError) as error:
                if is_renewed or not (pool.credentials.has_certificate and _refuses_certificate(error)):
                    raise
                pool, is_renewed = await self._renewed(pool), True
                continue
            if answer.status_code == _UNAUTHORIZED and not is_renewed:
                await stack.aclose()
                pool, is_renewed = await self._renewed(pool), True
                continue
            pause_seconds = _pause(answer, method, tries, self.timing)
            if pause_seconds is None:
                return answer
            await stack.aclose()
            tries += 1
            await self.timing.clock.sleep(pause_seconds)
            pool = await self._current()  # another request may have renewed the credentials meanwhile

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
        from httpx_ws import WebSocketUpgradeError  # noqa: PLC0415 - most commands of the command line open none

        async with AsyncExitStack() as stack:

            async def opened(credentials: Credentials) -> httpx_ws.AsyncWebSocketSession:
                async with asyncio.timeout(limit_seconds):
                    return await stack.enter_async_context(_websocket(credentials, self.timing, path, params))

            pool, is_renewed, tries = await self._current(), False, 0
            while True:
                try:
                    socket = await opened(pool.credentials)
                    break
                except (WebSocketUpgradeError, httpx.TransportError, ssl.SSLError) as error:
                    answer = error.response if isinstance(error, WebSocketUpgradeError) else None
                    if not is_renewed and _refuses(answer, error, pool.credentials):
                        pool, is_renewed = await self._renewed(pool), True
                        continue
                    pause_seconds = None if answer is None else _pause(answer, "GET", tries, self.timing)
                    if pause_seconds is None:
                        raise
                    tries += 1
                    await self.timing.clock.sleep(pause_seconds)
            yield socket

    # ------------------------------------------------------------------ renewal

    async def _current(self) -> _Pool:
        expires = self._pool.credentials.expires
        if expires is None or self.timing.clock.now() < expires:
            return self._pool
        return await self._renewed(self._pool)

    async def _renewed(self, refused: _Pool) -> _Pool:
        """The connections with credentials that were read after those of `refused`.

        Raises:
            KubeClusterError: they cannot be read, or not for this purpose.
        """
        purpose = _purpose.get()
        while self._pool is refused:  # else another request's 401 was answered meanwhile
            if self._renewal is None:
                self._check(purpose)
                self._renewal = _Renewal(self._renew(refused, purpose), may_ask=purpose is Purpose.FOREGROUND)
            renewal = self._renewal
            try:
                await asyncio.shield(renewal.task)
            except KubeClusterError:
                if renewal.may_ask or purpose is not Purpose.FOREGROUND:
                    raise
        return self._pool

    async def _renew(self, refused: _Pool, purpose: Purpose) -> None:
        try:
            credentials = await self.login.read(may_ask=purpose is Purpose.FOREGROUND)
            self._pool = _Pool(credentials, self.timing)
        finally:
            self._renewal = None
        await refused.retire()

    def _check(self, purpose: Purpose) -> None:
        if purpose is Purpose.FOREGROUND or not self.login.starts_plugin:
            return
        reason = "the plugin that renews them may ask a person, so it is not started in the background"
        if purpose is Purpose.UPKEEP and not self.login.needs_person:
            if self._upkeep.begins():
                return
            reason = "the plugin that renews them was started just now, and is not again and again in the background"
        raise KubeClusterError(
            f"the credentials for {self.address} have ended",
            reason=reason,
            next_step="They are renewed when the program asks for something next, such as cluster.scale",
            status=_UNAUTHORIZED,
        )


class _Renewal:
    """A reading of credentials under way. It outlives whoever waits for it."""

    def __init__(self, reading: Any, *, may_ask: bool) -> None:
        self.may_ask = may_ask
        self.task: asyncio.Task[None] = asyncio.create_task(reading)
        # Those who waited may all be gone: its error is then nobody's.
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())


class _Upkeep:
    """How often a plugin is started for what a program has: again and again without success, ever more seldom."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._pause_seconds = 0.0
        self._last = 0.0

    def begins(self) -> bool:
        """True if it may be started now; then that is noted."""
        timing, now = self._timing, self._timing.clock.monotonic()
        since = now - self._last
        if self._pause_seconds and since < self._pause_seconds:
            return False
        is_again = since < 2 * self._pause_seconds + timing.plugin_seconds
        doubled = min(timing.upkeep_most_seconds, 2 * self._pause_seconds)
        self._pause_seconds = doubled if self._pause_seconds and is_again else timing.upkeep_seconds
        self._last = now
        return True


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
    from httpx_ws import aconnect_ws  # noqa: PLC0415 - see `Session.websocket`

    async with _client(credentials, timing) as client:
        # Its own pings end a connection whose reader is slow: port_forward.py has others.
        opening: AbstractAsyncContextManager[httpx_ws.AsyncWebSocketSession] = aconnect_ws(
            path, client, params=params, extensions=_extensions(credentials), keepalive_ping_interval_seconds=None
        )
        async with opening as socket:
            yield socket


def _client(credentials: Credentials, timing: Timing) -> httpx.AsyncClient:
    named = [("User-Agent", "gpudask"), ("Content-Type", "application/json"), *credentials.headers]
    if credentials.authorization:
        named.append(("Authorization", credentials.authorization))
    # As bytes: httpx refuses names of users and groups that are not ASCII.
    headers = [(name.encode(), value.encode()) for name, value in named]
    _quiet.hosts.add(httpx.URL(credentials.server).netloc)
    without_proxy = not credentials.proxy and is_direct(credentials.server, os.environ)
    return httpx.AsyncClient(
        base_url=credentials.server,
        headers=headers,
        verify=credentials.tls,
        proxy=credentials.proxy,
        mounts={f"all://{httpx.URL(credentials.server).netloc.decode()}": None} if without_proxy else None,
        timeout=_limits(timing),
    )


class _Quiet(logging.Filter):
    """httpx tells of each request at INFO: of those to an API server that is a line every few seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.hosts: set[bytes] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """False for a line about one of our requests."""
        arguments = record.args if isinstance(record.args, tuple) else ()
        is_ours = any(isinstance(item, httpx.URL) and item.netloc in self.hosts for item in arguments)
        return record.levelno > logging.INFO or not is_ours


_quiet = _Quiet()
logging.getLogger("httpx").addFilter(_quiet)


def _pause(answer: httpx.Response, method: str, tries: int, timing: Timing) -> float | None:
    """Seconds until a busy server is asked once more; None: its answer is taken.

    429 comes before anything was done, and so does what says when to ask again; another 503 of a write may come after.
    """
    status, wish = answer.status_code, _retry_after(answer, timing)
    is_busy = status == HTTPStatus.TOO_MANY_REQUESTS or (
        status == HTTPStatus.SERVICE_UNAVAILABLE and (method == "GET" or wish is not None)
    )
    if not is_busy or tries >= timing.busy_tries:
        return None
    return min(timing.busy_most_seconds, timing.busy_seconds * 2**tries if wish is None else wish)


def _retry_after(answer: httpx.Response, timing: Timing) -> float | None:
    """The seconds that the server wants to be left alone: a number, or a date."""
    said = answer.headers.get("Retry-After", "").strip()
    if said.isascii() and said.isdigit():
        return float(said[:9])
    with suppress(ValueError, TypeError, OverflowError):
        date: datetime = email.utils.parsedate_to_datetime(said)
        return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - timing.clock.now()).total_seconds())
    return None


def _refuses(answer: httpx.Response | None, error: Exception, credentials: Credentials) -> bool:
    """True if the `answer` refuses them, or where there is none the `error`."""
    if answer is not None:
        return answer.status_code == _UNAUTHORIZED
    return credentials.has_certificate and _refuses_certificate(error)


def _refuses_certificate(error: BaseException | None) -> bool:
    """True if TLS itself failed by what the client showed: a proxy before the server ends expired certificates so."""
    while error is not None:
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLCertVerificationError):
            reason = str(error.reason or error)
            return "ALERT" in reason and (
                "CERTIFICATE" in reason or "ACCESS_DENIED" in reason or "UNKNOWN_CA" in reason
            )
        error = error.__cause__ or error.__context__
    return False


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
