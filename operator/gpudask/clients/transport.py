"""Requests to the API server: plain JSON through `kubernetes.aio`'s configuration and authentication.

Not through its typed calls: those validate objects against the client's own, older idea of them, and cost more
than twice the memory.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from http import HTTPStatus
from typing import Any, Self

import aiohttp
from kubernetes.aio import client, config

from gpudask.api import Json
from gpudask.clients import json_parser
from gpudask.clients.clock import Clock
from gpudask.clients.errors import ApiError, PageTooLargeError
from gpudask.clients.flow_control import FairQueue

JSON = "application/json"
_REQUEST_SECONDS = 30.0
# The HTTP client resolves `..`: of a name that a tenant wrote, into a path of somebody else's namespace.
_PATH = re.compile(r"(?:/[A-Za-z0-9][-A-Za-z0-9._:]*)+")
# Requests at a time: of all clusters, of one, and of those of one namespace; watches and lists take no slot. What one
# namespace has on its way is what the API server, which cannot tell them apart, has another's wait for.
_REQUESTS, _REQUESTS_PER_CLUSTER, _REQUESTS_PER_NAMESPACE = 64, 16, 24
_LONGEST_RETRY_AFTER_SECONDS = 300.0
# An object has 1.5 MB at most in etcd; in JSON a character may take six. Twice that is no object.
_LONGEST_LINE_BYTES = 20_000_000
# Of JSON so much is parsed at once, in some 50 ms at worst: a hundred usual pods have a quarter of it.
_LONGEST_PAGE_BYTES = 4_000_000


class ApiServer:
    """One connection pool to the API server. Raises ApiError, and nothing else.

    `may_write` is asked before each request that is no GET, at the last moment: of several operators one may.
    `clock` gets the API server's time from every answer. `on_answer` is called for each request with its verb, LIST and
    WATCH told from GET, and the HTTP status of its answer; 0: none came.
    """

    def __init__(self, configuration: Any) -> None:
        configuration.connection_pool_maxsize = 0  # watches must not starve the rest
        configuration.retries = None
        self._api = client.ApiClient(configuration)
        self._queue = FairQueue(_REQUESTS, _REQUESTS_PER_CLUSTER, _REQUESTS_PER_NAMESPACE)
        self.clock = Clock()
        self.may_write: Callable[[], bool] = _always
        self.on_answer: Callable[[str, int], None] = lambda _verb, _status: None

    @classmethod
    async def connect(cls, kubeconfig: str | None = None) -> Self:
        """Connect by the file `kubeconfig`; without one, as the pod's service account."""
        configuration = client.Configuration()
        if kubeconfig:
            await config.load_kube_config(config_file=kubeconfig, client_configuration=configuration)
        else:
            config.load_incluster_config(client_configuration=configuration)
        return cls(configuration)

    @property
    def waiting(self) -> int:
        """The number of requests that wait for their turn."""
        return self._queue.waiting

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        accept: str = JSON,
        bulk: bool = False,
    ) -> Json:
        """Send a request; its JSON answer. `bulk`: it waits behind the other requests of its cluster.

        Raises:
            ApiError: the answer is no success, or none came.
        """
        shown = f"{method} {path}"
        async with self._queue.slot(bulk=bulk):
            if method != "GET" and not self.may_write():
                raise ApiError(0, "NotLeading", "another operator acts, this one stands by", shown)
            try:
                response = await self._send(
                    method,
                    path,
                    query or {},
                    limit=_REQUEST_SECONDS,
                    body=body,
                    content_type=content_type,
                    accept=accept,
                )
                text = await response.read()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise ApiError(0, type(error).__name__, str(error), shown) from error
        return _answer(response, text, shown)

    async def stream(self, path: str, *, query: dict[str, str], accept: str = JSON) -> AsyncGenerator[Json]:
        """The events of a watch, until the server ends it.

        Raises:
            ApiError: it could not be started, or broke off.
        """
        shown = f"WATCH {path}"
        try:
            seconds = aiohttp.ClientTimeout(total=None, connect=_REQUEST_SECONDS, sock_read=_read_timeout(query))
            response = await self._send("GET", path, query, limit=seconds, accept=accept, verb="WATCH")
            if response.status != HTTPStatus.OK:
                _answer(response, await response.read(), shown)
            try:
                async for line in _lines(response.response.content):
                    yield json_parser.loads(line)
            finally:
                response.response.close()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, type(error).__name__, str(error), shown) from error
        except ValueError as error:
            # No status of a lost connection: going on from the same version would meet the same event for ever.
            raise ApiError(HTTPStatus.BAD_GATEWAY, "Unreadable", str(error), shown) from error

    async def text(self, path: str, *, query: dict[str, str]) -> str:
        """A text of the API server, such as a log; it waits behind the other requests of its cluster.

        Raises:
            ApiError: as `request`.
        """
        shown = f"GET {path}"
        async with self._queue.slot(bulk=True):
            try:
                response = await self._send("GET", path, query, limit=_REQUEST_SECONDS, accept="*/*")
                text = await response.read()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise ApiError(0, type(error).__name__, str(error), shown) from error
        if response.status != HTTPStatus.OK:
            _answer(response, text, shown)
        return bytes(text).decode(errors="replace")

    async def chunks(self, path: str, *, query: dict[str, str], seconds: float) -> AsyncGenerator[bytes]:
        """The bytes of a text that grows, such as a log that is followed, until the server ends it.

        Raises:
            ApiError: it could not be started, broke off, or went on for `seconds`.
        """
        shown = f"FOLLOW {path}"
        try:
            limit = aiohttp.ClientTimeout(total=seconds, connect=_REQUEST_SECONDS)
            response = await self._send("GET", path, query, limit=limit, accept="*/*")
            if response.status != HTTPStatus.OK:
                _answer(response, await response.read(), shown)
            try:
                async for chunk in response.response.content.iter_any():
                    yield chunk
            finally:
                response.response.close()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, type(error).__name__, str(error), shown) from error

    async def list_page(self, path: str, *, query: dict[str, str], accept: str) -> Json:
        """One page of a list, in the form that `accept` names.

        Raises:
            PageTooLargeError: it has more than one object, and is too large to be read at once.
            ApiError: as `request`.
        """
        shown = f"LIST {path}"
        try:
            response = await self._send("GET", path, query, limit=_REQUEST_SECONDS, accept=accept, verb="LIST")
            if response.status == HTTPStatus.OK:
                text = await _read_page(response.response, shown, is_single=query.get("limit") == "1")
            else:
                text = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, type(error).__name__, str(error), shown) from error
        return _answer(response, text, shown)

    async def _send(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        *,
        limit: Any,
        body: Any = None,
        content_type: str = JSON,
        accept: str = JSON,
        verb: str = "",
    ) -> Any:
        if not _PATH.fullmatch(path):
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", "no object can have this name", f"{method} {path}")
        serialized = await self._api.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            body=body,
            header_params={"Accept": accept, "Content-Type": content_type},
            auth_settings=["BearerToken"],
        )
        sent_at = self.clock.request_sent()
        try:
            response = await self._api.call_api(*serialized, _request_timeout=limit)
        except (aiohttp.ClientError, TimeoutError, OSError):
            self.on_answer(verb or method, 0)
            self.clock.response_missed(sent_at)
            raise
        except asyncio.CancelledError:
            self.clock.response_missed(sent_at, cancelled=True)
            raise
        self.on_answer(verb or method, int(response.status))
        self.clock.response_received(response.headers.get("Date"), sent_at)
        return response


def _always() -> bool:
    return True


def _read_timeout(query: dict[str, str]) -> float:
    return float(query.get("timeoutSeconds", "300")) + _REQUEST_SECONDS


def _answer(response: Any, text: bytes, request: str) -> Json:
    try:
        body = json_parser.loads(text) if text else {}
    except ValueError:
        body = text[:200].decode(errors="replace")
    if not isinstance(body, dict):
        body = {"message": f"no JSON object was answered: {str(body)[:200]}"}
    if response.status >= HTTPStatus.MULTIPLE_CHOICES:
        reason, message = str(body.get("reason") or ""), str(body.get("message") or "")
        retry_after = _retry_after_seconds(response.headers)
        raise ApiError(response.status, reason, message, request, retry_after_seconds=retry_after)
    return body


def _retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """The header Retry-After, as the API server writes it: whole seconds."""
    text = headers.get("Retry-After", "")
    return min(float(text), _LONGEST_RETRY_AFTER_SECONDS) if text.isdecimal() else None


async def _read_page(response: aiohttp.ClientResponse, shown: str, *, is_single: bool) -> bytes:
    """The body of a page. One object is read whatever its size.

    Raises:
        PageTooLargeError: it is longer than a page may be.
        ApiError: it is longer than any object can be.
    """
    text = bytearray()
    async for chunk in response.content.iter_any():
        text += chunk
        if len(text) > (_LONGEST_LINE_BYTES if is_single else _LONGEST_PAGE_BYTES):
            response.close()
            if is_single:
                raise ApiError(
                    HTTPStatus.BAD_GATEWAY, "Unreadable", f"one object of more than {len(text)} bytes", shown
                )
            raise PageTooLargeError
    return bytes(text)


async def _lines(content: aiohttp.StreamReader) -> AsyncGenerator[bytes]:
    """The lines of a stream. aiohttp's own end it at the first that is longer than its buffer.

    Raises:
        ValueError: a line is longer than any object can be.
    """
    pending = bytearray()
    async for chunk in content.iter_any():
        ended, newline, rest = chunk.rpartition(b"\n")
        if newline:
            pending += ended
            for line in pending.split(b"\n"):
                if line.strip():
                    yield bytes(line)
            pending = bytearray(rest)
        else:
            pending += chunk
        if len(pending) > _LONGEST_LINE_BYTES:
            raise ValueError(f"an event of more than {_LONGEST_LINE_BYTES} bytes")
    if pending.strip():
        yield bytes(pending)
