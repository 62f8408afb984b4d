"""An HTTP session for peers that are not trusted: it follows nowhere, keeps nothing, and reads so much and no more.

aiohttp bounds each header and their number. It does not bound what comes before an answer (any number of
informational ones), nor how an answer is cut into chunks: either keeps the event loop busy for as long as a peer
likes to send. So answers have a length, and what stands before its body is counted.
"""

from __future__ import annotations

import functools
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader

HEAD_BYTES = 32_768
_SLICE_BYTES = 16_384  # parsed at one go
_BUFFER_BYTES = 16_384  # of a body, while nobody reads it
_INFORMATIONAL = range(100, 200)


class LengthError(aiohttp.ClientError):
    """More than the peer may send, or it does not say how much that will be."""


def new_session() -> aiohttp.ClientSession:
    """A session with any number of connections, each of which serves one request."""
    # Not kept for a next one: on an open connection without a request a peer may send what it likes.
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
    """How many bytes the body of `response` has.

    Raises:
        LengthError: more than `limit`; or it has no length, or is compressed, so that none means anything.
    """
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise LengthError("expected no Content-Encoding")
    if response.content_length is None or "Transfer-Encoding" in response.headers:
        raise LengthError("expected a Content-Length")
    if response.content_length > limit:
        raise LengthError(f"expected at most {limit} bytes, got {response.content_length}")
    return response.content_length


class _CountedHandler(ResponseHandler):
    """The connection of one request: it ends when the head of the answer gets too long."""

    _head_bytes = 0
    _has_head = False

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Take in the head of an answer."""
        self._has_head = self._has_head or data[0].code not in _INFORMATIONAL
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        """Take in some bytes, slice by slice: the head may end in any."""
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
