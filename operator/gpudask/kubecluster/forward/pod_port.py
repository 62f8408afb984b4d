"""A connection to a port of a pod, through the API server, for bytes in both directions.

The websocket to a pod speaks Kubernetes' port-forward protocol. Each frame begins with its channel: 0 for what goes to
the port and comes from it, 1 for why it ended. The first frame of each channel only names the port:
https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/kubelet/pkg/cri/streaming/portforward/websocket.go
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

import anyio
import httpcore
import httpx
import httpx_ws
from wsproto.utilities import ProtocolError

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.kube.request import FORBIDDEN, Connection, path_of, rbac_step
from gpudask.kubecluster.timing import Timing

logger = logging.getLogger(__name__)

_DATA, _ERROR = b"\x00", 1
_CHUNK_BYTES = 256 * 1024
# How a connection breaks: by the operating system, and in each layer of the library's.
_BROKEN = (
    OSError,
    httpx.HTTPError,
    httpx_ws.HTTPXWSException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    ProtocolError,
)


class PodPort:
    """An open connection to a port of a pod, for bytes in both directions."""

    def __init__(self, socket: httpx_ws.AsyncWebSocketSession) -> None:
        self._socket = socket
        self._named: set[int] = set()
        self._awaited: object | None = None  # another for each message that is waited for; None while none is

    async def send(self, data: bytes) -> None:
        """Send some bytes.

        Raises:
            ConnectionError: the connection broke.
        """
        try:
            await self._socket.send_bytes(_DATA + data)
        except _BROKEN as error:
            raise ConnectionError(f"the connection to the pod broke: {error!r}") from error

    async def receive(self) -> bytes:
        """The next bytes that come; empty when the connection has ended, whichever way."""
        while True:
            self._awaited = object()
            try:
                message = await self._socket.receive_bytes()
            except httpx_ws.HTTPXWSException as error:
                logger.debug("the port-forward broke: %r", error)
                return b""
            finally:
                self._awaited = None
            channel, content = message[0], message[1:]
            if channel not in self._named:
                self._named.add(channel)
            elif channel == _ERROR:
                logger.debug("the port-forward ended: %s", content.decode(errors="replace"))
                return b""
            elif content:
                return content

    async def watch_over(self, timing: Timing) -> None:
        """Ping the pod's end again and again, and return when the connection is broken.

        The answer to a ping comes behind all that was sent before it, and is read only once that was taken. So what
        counts is an answer that does not come while nothing else does and whoever reads waits for it.
        """
        while True:
            await timing.clock.sleep(timing.forward_ping_seconds)
            try:
                pong, awaited = await self._socket.ping(), self._awaited
            except (httpx_ws.HTTPXWSException, ProtocolError) as error:
                logger.debug("the port-forward broke: %r", error)
                return
            answered = asyncio.ensure_future(pong.wait())
            waited = asyncio.ensure_future(timing.clock.sleep(timing.forward_pong_seconds))
            try:
                await asyncio.wait([answered, waited], return_when=asyncio.FIRST_COMPLETED)
                if not answered.done() and awaited is not None and awaited is self._awaited:
                    logger.debug("the port-forward is silent")
                    return
            finally:
                answered.cancel()
                waited.cancel()


@contextlib.asynccontextmanager
async def open_port(
    server: Connection, pod: str, port: int, *, limit_seconds: float | None = None
) -> AsyncIterator[PodPort]:
    """Connect to `port` of `pod`, through the API server. Whether something listens there is not known yet.

    Raises:
        KubeClusterError: the server refuses (the message has the rule that is missing), cannot be reached, or has not
            opened it within `limit_seconds`, without it 20 s.
        ConnectionError: it broke while the block ran.
    """
    limit_seconds = limit_seconds or server.timing.forward_open_seconds
    path = f"{path_of('v1', server.namespace)}/pods/{pod}/portforward"
    what = f"cannot forward port {port} of pod {pod}"
    is_open = False
    try:
        opening = server.session.websocket(path, params={"ports": str(port)}, limit_seconds=limit_seconds)
        async with opening as socket:
            is_open = True
            yield PodPort(socket)
    except httpx_ws.WebSocketUpgradeError as error:
        status = error.response.status_code
        raise KubeClusterError(
            what,
            reason=f"the API server answers {status}",
            # Forwarding over websockets is a GET, over SPDY it was a POST: kubectl's users know `create`.
            next_step=rbac_step("pods/portforward", server.namespace, "get", "create")
            if status == FORBIDDEN
            else "See the pod's events: kubectl describe pod",
            status=status,
        ) from error
    except (*_BROKEN, ExceptionGroup) as error:  # a websocket's tasks run in a group
        if isinstance(error, ExceptionGroup) and error.split(_BROKEN)[1] is not None:
            raise
        if is_open:
            raise ConnectionError(f"the connection to pod {pod} broke: {error!r}") from error
        late = f"{server.session.address} did not open it within {limit_seconds:g} s"
        raise KubeClusterError(
            what,
            reason=late if isinstance(error, TimeoutError) else server.session.reason(error),
            next_step="Check that `kubectl port-forward` works on this cluster, or run inside it",
            unanswered=True,
        ) from error


async def pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    opened: PodPort,
    answered: Callable[[], None],
    timing: Timing,
) -> None:
    """Copy both ways until either side ends, and close `writer`; `answered` is called when bytes come from the pod."""
    ways = [
        asyncio.create_task(_upstream(reader, opened)),
        asyncio.create_task(_downstream(opened, writer, answered)),
        asyncio.create_task(opened.watch_over(timing)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        writer.close()  # at once: saying goodbye to the pod may take a while
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _upstream(reader: asyncio.StreamReader, opened: PodPort) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        await opened.send(data)


async def _downstream(opened: PodPort, writer: asyncio.StreamWriter, answered: Callable[[], None]) -> None:
    while data := await opened.receive():
        answered()
        writer.write(data)
        await writer.drain()
