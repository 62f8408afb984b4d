"""HTTP keep-alive to a pod, for programs that open a connection for each request: one to the pod serves them all.

JupyterLab's extension looks for the dashboard every four seconds, each time by a connection of its own. What such a
request and its answer are is read here, so that the connection to the pod can serve the next one. Only what may be
asked twice goes that way, GET and HEAD without a body, one at a time: where the kept connection turns out to be broken
before it has answered, the request goes another way. All else, such as a plot's websocket, is not looked into.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum, auto

import h11

from gpudask.kubecluster.forward.pod_port import PodPort
from gpudask.kubecluster.timing import Timing

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 64 * 1024
_OWN_HEADERS = (b"connection", b"keep-alive", b"proxy-connection")  # of one connection, not of the request


class Outcome(Enum):
    """How a request ended.

    Attributes:
        UNANSWERED: nothing came, and it may be asked another way.
        WHOLE: it is answered, and so may the next one be.
        OVER: it is answered as far as it could be, and the end of the connection is the end of the answer.
    """

    UNANSWERED = auto()
    WHOLE = auto()
    OVER = auto()


class KeptConnection:
    """A connection to a pod's port that serves one request after another, and ends when none comes for a while."""

    def __init__(self, opened: PodPort, timing: Timing) -> None:
        self._opened = opened
        self._timing = timing
        self._exchange: _Exchange | None = None
        self._was_used = True
        self._is_abandoned = asyncio.Event()

    @property
    def is_free(self) -> bool:
        """Whether it can take a request."""
        return self._exchange is None and not self._is_abandoned.is_set()

    async def run(self) -> None:
        """Read the answers, until the connection ends or breaks, or nobody has asked for `forward_keep_seconds`."""
        ways = [
            asyncio.create_task(self._take()),
            asyncio.create_task(self._opened.watch_over(self._timing)),
            asyncio.create_task(self._expire()),
            asyncio.create_task(self._is_abandoned.wait()),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._is_abandoned.set()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            if self._exchange is not None:
                self._exchange.end()

    async def ask(self, request: h11.Request, writer: asyncio.StreamWriter, left: asyncio.Future[bytes]) -> Outcome:
        """Send `request`, and write its answer as it comes.

        Args:
            request: without a body.
            writer: who asks.
            left: done with no bytes when whoever asks has left: then the rest of the answer is not waited for.
        """
        exchange = self._exchange = _Exchange(request, writer)
        self._was_used = True
        try:
            await self._opened.send(exchange.question)
            either: tuple[asyncio.Future[Outcome] | asyncio.Future[bytes], ...] = (exchange.outcome, left)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not exchange.outcome.done() and (left.exception() is not None or left.result() == b""):
                return Outcome.OVER
            return await exchange.outcome
        except ConnectionError as error:
            logger.debug("a kept connection broke: %s", error)
            return Outcome.UNANSWERED
        finally:
            if not exchange.outcome.done():  # the rest of its answer would be taken for that of the next
                self._is_abandoned.set()

    async def _take(self) -> None:
        while True:
            data = await self._opened.receive()
            exchange = self._exchange
            if exchange is None:  # it has ended, or the pod says what nobody asked for
                return
            if not await exchange.take(data):
                return
            if exchange.outcome.done():
                self._exchange = None

    async def _expire(self) -> None:
        while self._was_used or self._exchange is not None:
            self._was_used = False
            await self._timing.clock.sleep(self._timing.forward_keep_seconds)


class _Exchange:
    """One request and its answer, which is written as it comes."""

    def __init__(self, request: h11.Request, writer: asyncio.StreamWriter) -> None:
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._writer = writer
        self._is_begun = False
        self._parser = h11.Connection(h11.CLIENT)
        sent = [self._parser.send(request), self._parser.send(h11.EndOfMessage())]
        self.question = b"".join(part or b"" for part in sent)

    def end(self) -> None:
        """Nothing more comes."""
        if not self.outcome.done():
            self.outcome.set_result(Outcome.OVER if self._is_begun else Outcome.UNANSWERED)

    async def take(self, data: bytes) -> bool:
        """Take what came from the pod, nothing where its end came; False: the connection to it can serve no other."""
        try:
            is_whole = self._is_whole_with(data)
        except h11.RemoteProtocolError as error:
            logger.debug("what is forwarded is no HTTP: %s", error)
            if self._is_begun:  # whoever asked may make more of it
                self._writer.write(data)
            self.end()
            return False
        if data:
            self._is_begun = True
            try:
                self._writer.write(data)
                await self._writer.drain()
            except OSError:  # whoever asked has left
                self.end()
                return False
        if not is_whole:
            if not data:
                self.end()
            return bool(data)
        may_serve_on = self._parser.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}
        may_serve_on = may_serve_on and self._parser.trailing_data == (b"", False)
        if not self.outcome.done():
            self.outcome.set_result(Outcome.WHOLE if may_serve_on else Outcome.OVER)
        return may_serve_on

    def _is_whole_with(self, data: bytes) -> bool:
        self._parser.receive_data(data)
        while True:
            event = self._parser.next_event()
            if isinstance(event, h11.EndOfMessage):
                return True
            if event in (h11.NEED_DATA, h11.PAUSED) or isinstance(event, h11.ConnectionClosed):
                return False


async def serve(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    find: Callable[[], Awaitable[KeptConnection | None]],
) -> bytes | None:
    """Serve one connection of this machine by kept ones, as far as that goes.

    Args:
        reader: of the connection.
        writer: of it.
        find: gives a kept connection that is free; None where there is none.

    Returns:
        None: the connection is over. Else what was read and is not answered, for a connection to the pod of its own.
    """
    early = b""
    while True:
        read, request = await _read_request(reader, early)
        if not read:
            return None
        kept = await find() if request is not None else None
        if request is None or kept is None:
            return read
        more = asyncio.ensure_future(reader.read(_CHUNK_BYTES))
        try:
            outcome = await kept.ask(_for_another_connection(request), writer, more)
        finally:
            more.cancel()
            await asyncio.wait([more])
        early = b"" if more.cancelled() or more.exception() else more.result()
        if outcome is Outcome.UNANSWERED:
            return read + early
        if outcome is Outcome.OVER or _is_last(request):
            return None


async def _read_request(reader: asyncio.StreamReader, early: bytes) -> tuple[bytes, h11.Request | None]:
    """What was read, and the request that it is, if that is one that may be asked twice."""
    parser = h11.Connection(h11.SERVER)
    read = early
    try:
        if early:  # nothing would mean the end
            parser.receive_data(early)
        while (event := parser.next_event()) is h11.NEED_DATA:
            data = await reader.read(_CHUNK_BYTES)
            read += data
            if not data:
                return read, None
            parser.receive_data(data)
        is_all = isinstance(parser.next_event(), h11.EndOfMessage) and parser.trailing_data == (b"", False)
    except (h11.RemoteProtocolError, OSError):
        return read, None
    may_repeat = is_all and isinstance(event, h11.Request) and _may_be_asked_twice(event)
    return read, event if may_repeat and isinstance(event, h11.Request) else None


def _may_be_asked_twice(request: h11.Request) -> bool:
    named = {name for name, _ in request.headers}
    return request.method in (b"GET", b"HEAD") and request.http_version == b"1.1" and b"upgrade" not in named


def _is_last(request: h11.Request) -> bool:
    return any(name == b"connection" and b"close" in value.lower() for name, value in request.headers)


def _for_another_connection(request: h11.Request) -> h11.Request:
    headers = [(name, value) for name, value in request.headers.raw_items() if name.lower() not in _OWN_HEADERS]
    return h11.Request(method=request.method, target=request.target, headers=headers)
