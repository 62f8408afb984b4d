"""kopf's connections to the API server, over which no document comes that is too deep for kopf to read.

kopf reads JSON recursively as soon as a line of a watch is there. One cluster of a thousand levels would end its watch
with a RecursionError, and with the watch kopf, which lists the same cluster when it starts again. What kopf gets is cut
(`clients/documents.py`); the cluster is then refused by name, like any whose spec is too deep.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import kopf

from gpudask.clients import documents

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Session(kopf.AiohttpSession):
    """Credentials with a session made of them. They are the same if `credentials` are: kopf tries none twice."""

    credentials: kopf.ConnectionInfo
    aiohttp_session: aiohttp.ClientSession = field(compare=False)


def session(credentials: kopf.ConnectionInfo) -> Session:
    """A session as kopf makes one, but for what its answers let through. kopf closes it."""
    return Session(
        server=credentials.server,
        default_namespace=credentials.default_namespace,
        priority=credentials.priority,
        expiration=credentials.expiration,
        credentials=credentials,
        aiohttp_session=aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=credentials.as_ssl_context()),
            headers=credentials.as_http_headers(),
            proxy=credentials.proxy_url,
            trust_env=credentials.trust_env,
            response_class=_Response,
        ),
    )


class _Response(aiohttp.ClientResponse):
    """An answer of the API server. kopf reads lists by `json`, and watches by `content.iter_chunked`."""

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        await super().start(connection)
        self.content = _Content(self.content)  # type: ignore[assignment]  # a stream in all but its class
        return self

    async def json(self, **_: Any) -> Any:  # kopf gives no options
        return documents.loads_shallow(await self.read())


class _Content:
    """A stream whose chunks are whole lines, each a document that is not too deep."""

    def __init__(self, stream: aiohttp.StreamReader) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        begun = bytearray()
        async for chunk in self._stream.iter_chunked(size):
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                line = bytes(begun + end)
                begun.clear()
                yield _shallow(line) + b"\n"
            begun += rest
        if begun:
            yield _shallow(bytes(begun))


def _shallow(line: bytes) -> bytes:
    """The line; empty, which kopf skips, where nobody could read it: one object must not end the watch of all."""
    try:
        return documents.shallow(line)
    except ValueError as error:
        _LOG.error("an event of %d bytes cannot be read, and is left out: %s", len(line), error)
        return b""
