"""A local port that leads to the scheduler pod, and goes on doing so when pod or connection are replaced.

The listening socket lives as long as the object. Each connection to it finds the scheduler's present pod and
opens a websocket of its own, so a lost one costs one connection, which Dask's client makes again by itself.
kr8s' own PortForward holds on to the pod that it began with.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import httpx_ws

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.request import FORBIDDEN
from gpudask.kubecluster.rights import rbac_step
from gpudask.kubecluster.server import Server

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 256 * 1024
_DATA, _ERROR = b"\x00", 1
_ATTEMPTS = 5
_FIRST_PAUSE_SECONDS = 0.1
_OPEN_ERRORS = (OSError, httpx.HTTPError, httpx_ws.HTTPXWSException, KubeClusterError)
FindPod = Callable[[], Awaitable[str]]


class PortForward:
    """127.0.0.1:`local_port` -> `port` of the pod that `find_pod` names (`""`: none now)."""

    def __init__(self, server: Server, find_pod: FindPod, port: int) -> None:
        self.local_port = 0
        self._server = server
        self._find_pod = find_pod
        self._port = port
        self._pod = ""
        self._listener: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen, after one connection has shown that forwarding works.

        Raises:
            KubeClusterError: the server refuses; the message has the rule that is missing.
        """
        await self._check()
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.local_port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and cut what is open."""
        if self._listener is not None:
            self._listener.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _check(self) -> None:
        try:
            self._pod = await self._find_pod()
            async with self._server.open_port(self._pod, self._port):
                pass
        except httpx_ws.WebSocketUpgradeError as error:
            status = error.response.status_code
            raise KubeClusterError(
                f"cannot forward a port to pod {self._pod}",
                reason=f"the API server answers {status}",
                # Forwarding over websockets is a GET, over SPDY it was a POST: kubectl's users know `create`.
                next_step=rbac_step("pods/portforward", self._server.namespace, "get", "create")
                if status == FORBIDDEN
                else "See the pod's events: kubectl describe pod",
                status=status,
            ) from error
        except (OSError, httpx.HTTPError, httpx_ws.HTTPXWSException) as error:
            raise KubeClusterError(
                f"cannot forward a port to pod {self._pod}",
                reason=str(error) or type(error).__name__,
                next_step="Check that `kubectl port-forward` works on this cluster, or run inside it",
            ) from error

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:
            pass  # stop() cut it; asyncio would log a cancelled callback as an error
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(_FIRST_PAUSE_SECONDS * 2**attempt)
            pod, opened = self._pod, False
            try:
                pod = pod or await self._find_pod()
                if not pod:
                    continue
                async with self._server.open_port(pod, self._port) as socket:
                    self._pod, opened = pod, True
                    await _pump(reader, writer, socket)
                    return
            except _OPEN_ERRORS as error:
                if opened:
                    return  # bytes may have been lost: this connection is over, whatever ended it
                self._pod = ""  # it may have been replaced: look again
                logger.debug("forwarding to pod %s: attempt %d: %r", pod, attempt + 1, error)
        logger.warning("gpudask: no connection to the scheduler's port %d; Dask tries again", self._port)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, socket: Any) -> None:
    """Copy both ways until either side ends."""
    ways = [asyncio.create_task(_upstream(reader, socket)), asyncio.create_task(_downstream(socket, writer))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _upstream(reader: asyncio.StreamReader, socket: Any) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        await socket.send_bytes(_DATA + data)


async def _downstream(socket: Any, writer: asyncio.StreamWriter) -> None:
    opened = set()
    while True:
        message = await socket.receive_bytes()
        channel = message[0]
        if channel not in opened:  # the first frame of a channel only names its port
            opened.add(channel)
        elif channel == _ERROR:
            logger.debug("the port-forward ended: %s", message[1:].decode(errors="replace"))
            return
        else:
            writer.write(message[1:])
            await writer.drain()
