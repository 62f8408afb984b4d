"""Client for the preload's routes in a Dask scheduler (docs/preload-protocol.md), whose answers are not trusted.

A scheduler runs its user's code, so it may answer anything, at any pace. No redirect of it is followed, no byte more is
read than an honest answer has, nothing is awaited beyond the deadline, and its messages are quoted.

aiohttp bounds each header and their number. It does not bound what comes before an answer (any number of informational
ones), nor how an answer is cut into chunks: either keeps the event loop busy for as long as a peer likes to send. So an
answer needs a length, and the bytes before its body are counted. The cost of its JSON is estimated before it is parsed.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
import weakref
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NoReturn

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader

from gpudask.api import Json
from gpudask.api.untrusted_text import quote
from gpudask.clients.errors import SchedulerError, SchedulerTrouble
from gpudask.history.tasks import TaskHistory, parse_report
from gpudask.history.tasks import parse as parse_history
from gpudask.scaling.demand import PROTOCOL, Demand, UnknownProtocolError, parse, parse_health, parse_refusals

_CONNECT_SECONDS = 5.0
# A scheduler that unpickles a large graph answers nothing for seconds; longer silence is a lost connection.
SILENCE_SECONDS = 60.0
# The desired state is sent between the polls, and the cluster waits for it: better tried again soon.
_DESIRE_SECONDS = 10.0
# A report of 100,000 tasks is drawn by the scheduler, and what it was made for waits meanwhile.
_REPORT_SECONDS = 60.0
# An honest scheduler with 1,000 workers and 1,000 requirements, all talkative, answers 1.1 MB and 42,000 values.
ANSWER_BYTES, _VALUES = 5_000_000, 200_000
_REFUSAL_BYTES = 4_096
# Up to here an answer is read at once. Of longer ones each namespace has few in memory at a time.
_SMALL_BYTES = 65_536
_LARGE_AT_ONCE = 2
_BODY_SECONDS = 20.0
# Limits: of an answer before its body; of the bytes parsed in one step; of a body that is buffered and not read yet.
HEAD_BYTES, _SLICE_BYTES, _BUFFER_BYTES = 32_768, 16_384, 16_384
_INFORMATIONAL = range(100, 200)
DEPTH = 16  # of an answer's JSON
_EMPTY = re.compile(rb'"[^"]*"')
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))


class SchedulerClient:
    """Client for all schedulers, without a limit of connections: each holds a poll open."""

    def __init__(self, may_write: Callable[[], bool] = lambda: True, silence_seconds: float = SILENCE_SECONDS) -> None:
        self._may_write = may_write  # only the leader may
        self._silence_seconds = silence_seconds
        self._session: aiohttp.ClientSession | None = None
        self._large: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def demand(
        self,
        base: str,
        token: str,
        *,
        known_version: str,
        wait_seconds: float,
        quiet_seconds: float = 0.0,
        namespace: str = "",
    ) -> Demand:
        """Get the demand once it differs from `known_version`, or after `wait_seconds`.

        `quiet_seconds`: for so long, of that only what is urgent answers. `namespace`: the cluster's. The long answers
        of one namespace are read a few at a time.

        Raises:
            SchedulerError: no answer, or none that can be acted on.
        """
        query = {"seen": known_version, "wait": f"{wait_seconds:g}"}
        if quiet_seconds:
            query["quiet"] = f"{quiet_seconds:.3f}"
        url, seconds = f"{base}/gpudask/v1/demand", wait_seconds + self._silence_seconds
        try:
            answer, length = await self._request("GET", url, token, seconds, namespace=namespace, params=query)
        except SchedulerError as error:
            if error.trouble is not SchedulerTrouble.NO_PRELOAD:
                raise
            raise SchedulerError(error.trouble, await self._why_no_preload(base, token)) from error
        try:
            return parse(answer, answer_bytes=length)
        except UnknownProtocolError as error:
            raise SchedulerError(SchedulerTrouble.PROTOCOL, str(error)) from error

    async def desire(self, base: str, token: str, desired: Json) -> dict[str, str]:
        """Send the desired state, all of it; the pods (by Dask name) that were not retired, with the reason.

        Raises:
            SchedulerError: no answer, or a refusal.
        """
        if not self._may_write():
            raise SchedulerError(SchedulerTrouble.REFUSED, "another operator acts, this one stands by")
        body = {"protocol": PROTOCOL, **desired}
        answer, _ = await self._request("POST", f"{base}/gpudask/v1/desired", token, _DESIRE_SECONDS, json=body)
        try:
            return parse_refusals(answer)
        except UnknownProtocolError as error:
            raise SchedulerError(SchedulerTrouble.PROTOCOL, str(error)) from error

    async def history(
        self, base: str, token: str, *, namespace: str, now: float, seconds: float = _DESIRE_SECONDS
    ) -> TaskHistory:
        """Get what the scheduler tells of its tasks. `now`: the API server's time; `seconds`: until it has to answer.

        Raises:
            SchedulerError: no answer, or not the preload's; so it is where that is of an earlier version.
        """
        answer, _ = await self._request("GET", f"{base}/gpudask/v1/history", token, seconds, namespace=namespace)
        try:
            return parse_history(answer, now)
        except UnknownProtocolError as error:
            raise SchedulerError(SchedulerTrouble.PROTOCOL, str(error)) from error

    async def counts(self, base: str, *, namespace: str) -> tuple[int, int]:
        """How many tasks a scheduler without the preload knows, and how many clients are connected to it.

        From a route of Dask's own. Its tasks are those that wait, run, failed, or whose results are in memory.

        Raises:
            SchedulerError: no answer, or none of that shape.
        """
        answer, _ = await self._request("GET", f"{base}/json/counts.json", "", _DESIRE_SECONDS, namespace=namespace)
        found = [answer.get(key) if isinstance(answer, dict) else None for key in ("tasks", "clients")]
        tasks, clients = (item if type(item) is int and item >= 0 else None for item in found)
        if tasks is None or clients is None:
            raise SchedulerError(SchedulerTrouble.PROTOCOL, "expected numbers of tasks and of clients")
        return tasks, max(0, clients - 1)  # one of them is Dask's own, "fire-and-forget"

    async def write_report(self, base: str, token: str, *, name: str, namespace: str) -> str:
        """Have the scheduler write a performance report; a message on where it is, or why there is none.

        Raises:
            SchedulerError: no answer, or a refusal.
        """
        if not self._may_write():
            raise SchedulerError(SchedulerTrouble.REFUSED, "another operator acts, this one stands by")
        url, query = f"{base}/gpudask/v1/report", {"name": name}
        answer, _ = await self._request("POST", url, token, _REPORT_SECONDS, namespace=namespace, params=query)
        return parse_report(answer)

    async def _why_no_preload(self, base: str, token: str) -> str:
        """The last line of the traceback on the preload's health route; where that is missing, where to look."""
        try:
            health, _ = await self._request("GET", f"{base}/gpudask/v1/health", token, _DESIRE_SECONDS)
            why = parse_health(health)
        except (SchedulerError, UnknownProtocolError):
            return "the scheduler runs without the preload: its arguments were changed, or its log says why"
        return f"the preload did not start in the scheduler: {why or 'its log says why'}"

    async def _request(
        self, method: str, url: str, token: str, seconds: float, *, namespace: str = "", **kwargs: Any
    ) -> tuple[Any, int]:
        """Send a request; the answer's JSON, and its length in bytes."""
        if self._session is None:
            self._session = new_session()
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_SECONDS, sock_connect=_CONNECT_SECONDS)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        kwargs |= {"headers": headers, "timeout": timeout, "allow_redirects": False}
        try:
            # One deadline for all of it, which bytes that trickle do not extend. Not aiohttp's own: it does not cover
            # the wait for the semaphore.
            async with asyncio.timeout(seconds), self._session.request(method, url, **kwargs) as response:
                if response.status != HTTPStatus.OK:
                    raise await _refusal(response, url)
                body = await self._read(response, namespace)
            return parse_json(body, values=_VALUES), len(body)
        except (LengthError, BadJsonError) as error:
            message = f"the answer of the scheduler is not the preload's: {quote(str(error))}"
            raise SchedulerError(SchedulerTrouble.PROTOCOL, message) from None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            message = quote(str(error)) or type(error).__name__
            raise SchedulerError(SchedulerTrouble.UNREACHABLE, f"the scheduler does not answer: {message}") from None

    async def _read(self, response: aiohttp.ClientResponse, namespace: str) -> bytes:
        if response.content_type != "application/json":
            raise BadJsonError(f"expected application/json, got {response.content_type}")
        if body_length(response, ANSWER_BYTES) <= _SMALL_BYTES:
            return await response.read()
        slots = self._large.setdefault(namespace, asyncio.Semaphore(_LARGE_AT_ONCE))
        async with slots, asyncio.timeout(_BODY_SECONDS):
            return await response.read()


async def _refusal(response: aiohttp.ClientResponse, url: str) -> SchedulerError:
    if response.status == HTTPStatus.UNAUTHORIZED:
        return SchedulerError(
            SchedulerTrouble.UNAUTHORIZED, "the scheduler refuses the token: it was made with another key"
        )
    if response.status == HTTPStatus.NOT_FOUND:
        return SchedulerError(
            SchedulerTrouble.NO_PRELOAD,
            "the preload did not start in the scheduler: its log and /gpudask/v1/health say why",
        )
    if response.status < HTTPStatus.BAD_REQUEST:
        message = f"{url}: {response.status}: expected 200, and no redirect"
        return SchedulerError(SchedulerTrouble.PROTOCOL, message)
    text = quote((await response.content.read(_REFUSAL_BYTES)).decode(errors="replace"))
    return SchedulerError(SchedulerTrouble.REFUSED, f"{url}: {response.status}: {text or 'without a word'}")


class LengthError(aiohttp.ClientError):
    """The answer is too long, or has no Content-Length."""


def new_session() -> aiohttp.ClientSession:
    """Make a session with any number of connections, each of which serves one request."""
    # Closed after it: on an open connection without a request a peer may send what it likes.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    handler: Any = functools.partial(_CountedHandler, connector._loop)  # noqa: SLF001
    connector._factory = handler  # noqa: SLF001 - there is no other way in
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        headers={"Accept-Encoding": "identity"},
        trust_env=False,
        read_bufsize=_BUFFER_BYTES,
        max_line_size=4096,
        max_field_size=4096,
        max_headers=64,
    )


def body_length(response: aiohttp.ClientResponse, limit: int) -> int:
    """The length in bytes of the body of `response`.

    Raises:
        LengthError: it is above `limit`, missing, or that of a compressed body, which means nothing.
    """
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise LengthError("expected no Content-Encoding")
    if response.content_length is None or "Transfer-Encoding" in response.headers:
        raise LengthError("expected a Content-Length")
    if response.content_length > limit:
        raise LengthError(f"expected at most {limit} bytes, got {response.content_length}")
    return response.content_length


class _CountedHandler(ResponseHandler):
    """The connection of one request, which is closed when the head of the answer gets too long."""

    _head_bytes = 0
    _has_head = False

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Process the parsed head of an answer."""
        self._has_head = self._has_head or data[0].code not in _INFORMATIONAL
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        """Process received bytes, slice by slice: the head may end in any."""
        for start in range(0, len(data) or 1, _SLICE_BYTES):
            if not self.is_connected():
                return
            if not self._has_head:
                self._head_bytes += len(data[start : start + _SLICE_BYTES])
            super().data_received(data[start : start + _SLICE_BYTES])
            if not self._has_head and self._head_bytes > HEAD_BYTES:
                self._fail(LengthError(f"expected a head of at most {HEAD_BYTES} bytes"))
                return

    def _fail(self, error: Exception) -> None:
        transport: Any = self.transport
        self.set_exception(error)
        transport.abort()


class BadJsonError(ValueError):
    """The body is no JSON, or more than an honest peer would send; the message has what was expected."""


def parse_json(body: bytes, *, values: int) -> Any:
    """Parse JSON of at most about so many `values`, nested about 16 deep at most, without NaN and Infinity.

    Each value costs up to 64 bytes of memory, whatever its text is. Of a key that comes twice, the last one counts.

    Raises:
        BadJsonError: the body is something else.
    """
    found = body.count(b",") + body.count(b"[") + body.count(b"{")
    if found > values:
        raise BadJsonError(f"expected at most {values} values, got about {found}")
    if not _is_shallow(body):
        raise BadJsonError(f"expected JSON, nested at most {DEPTH} deep")
    try:
        return json.loads(body.decode(), parse_constant=_refuse)
    except BadJsonError:
        raise
    except (ValueError, RecursionError) as error:
        raise BadJsonError(f"expected JSON: {type(error).__name__}") from None  # it holds the whole text


def _is_shallow(body: bytes) -> bool:
    """Whether no bracket outside of strings is left after removing empty pairs so many times."""
    if b"\\" in body:
        body = body.replace(rb"\\", b"").replace(rb"\"", b"")
    left = _EMPTY.sub(b"", body.translate(None, _ALL_BUT_BRACKETS).replace(b'""', b""))
    for _ in range(DEPTH):
        if not left:
            return True
        left = left.replace(b"[]", b"").replace(b"{}", b"")
    return not left


def _refuse(constant: str) -> NoReturn:
    raise BadJsonError(f"expected numbers, got {constant}")
