"""A local port forwarded to the scheduler pod, also when it is replaced; connections that do not answer are cut.

The listening socket lives as long as the object. Each connection to it finds the scheduler's present pod and
opens a websocket of its own, so a lost one costs one connection, which Dask's client makes again by itself.

A pod's end does not always end what is forwarded to it: its network can go before its last packets do, and then both
sides wait. So while anything is open the pods are watched, and what leads to one that is gone is cut.

A program that reads slowly keeps its connection, as with kubectl: that a ping is not answered says nothing while what
came before it is not taken.

Dask gives a connection that was taken all the time it has: what leads nowhere is cut soon, so that it tries again.

The websocket to a pod speaks Kubernetes' port-forward protocol. Each frame begins with its channel: 0 for what goes to
the port and comes from it, 1 for why it ended. The first frame of each channel only names the port:
https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/kubelet/pkg/cri/streaming/portforward/websocket.go
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Callable

import anyio
import httpcore
import httpx
import httpx_ws
from wsproto.utilities import ProtocolError

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.kube.pods import SchedulerPod, follow_scheduler, scheduler_pods
from gpudask.kubecluster.kube.request import FORBIDDEN, NOT_FOUND, Connection, path_of, rbac_step
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.kube.session import Purpose, requests_for
from gpudask.kubecluster.timing import Timing

logger = logging.getLogger(__name__)

_NO_POD = "it has no pod that runs"
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


class PortForward:
    """127.0.0.1:`local_port` -> `port` of the scheduler pod of `cluster`.

    Args:
        server: through which it leads.
        cluster: whose scheduler.
        port: of its pod.
        local_port: of this machine; 0: any that is free.
        limit_seconds: a connection that has not reached a pod by then is cut; None: 8 s.
        expects_handshake: one to which the pod has sent nothing by then is cut, too: a Dask scheduler answers a
            handshake, while a browser may open a connection long before it asks for anything.

    Attributes:
        trouble: why the last connection did not reach the scheduler; empty where it did.
    """

    def __init__(
        self,
        server: Server,
        cluster: str,
        port: int,
        local_port: int = 0,
        *,
        limit_seconds: float | None = None,
        expects_handshake: bool = False,
    ) -> None:
        self.local_port = local_port
        self.trouble = ""
        self._timing = server.timing
        self._limit_seconds = self._timing.forward_seconds if limit_seconds is None else limit_seconds
        self._expects_handshake = expects_handshake
        self._server = server
        self._cluster = cluster
        self._port = port
        self._pod: SchedulerPod | None = None  # the last that was connected to
        self._found = -math.inf  # when, by the monotonic clock
        self._is_used = asyncio.Event()
        self._may_watch = True
        self._listener: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], str] = {}  # the uid of its pod; empty until it is connected
        self._watching: asyncio.Task[None] | None = None

    async def start(self, *, check: bool = True) -> None:
        """Listen, after one connection has shown that forwarding works.

        Args:
            check: False where another port's connection is to show that.

        Raises:
            KubeClusterError: the server refuses; the message has the rule that is missing.
        """
        if check:
            await self._check()
        try:
            self._listener = await asyncio.start_server(self._serve_connection, "127.0.0.1", self.local_port)
        except OSError as error:
            raise KubeClusterError(
                f"cannot listen on port {self.local_port}",
                reason=str(error),
                next_step="Write another scheduler_forward_port=, or leave it out to take a free one",
            ) from error
        self.local_port = self._listener.sockets[0].getsockname()[1]
        self._watching = asyncio.create_task(self._cut_the_ended())

    async def stop(self) -> None:
        """Stop listening and cut what is open."""
        if self._listener is not None:
            self._listener.close()
        if self._watching is not None:
            self._watching.cancel()
        await self.cut()

    async def cut(self, *uids: str) -> None:
        """Cut what is open, to the pods of these uids where they are given; new connections are served as before."""
        tasks = [task for task, uid in self._connections.items() if not uids or uid in uids]
        for task in tasks:
            task.cancel()
        if tasks:  # a websocket says goodbye before it ends, which nobody may hear any more
            await asyncio.wait(tasks, timeout=self._timing.forward_cut_seconds)

    async def _cut_the_ended(self) -> None:
        timing = self._timing
        pause_seconds = timing.forward_look_seconds
        with requests_for(Purpose.POLLING):
            while True:
                await self._is_used.wait()
                await timing.clock.sleep(pause_seconds if self._may_watch else timing.forward_seldom_seconds)
                if await self._follow_pods():
                    pause_seconds = timing.forward_look_seconds
                else:
                    pause_seconds = min(timing.forward_seldom_seconds, 2 * pause_seconds)

    async def _follow_pods(self) -> bool:
        """Cut what leads to pods that are gone, until a watch over them ends; whether it ended well."""
        try:
            async with contextlib.aclosing(follow_scheduler(self._server, self._cluster)) as states:
                async for there in states:
                    ended = set(self._connections.values()) - {""} - there
                    if ended:
                        logger.debug("cutting what is forwarded to pods that are gone: %s", ended)
                        await self.cut(*ended)
                    if not self._may_watch:
                        return True
        except (KubeClusterError, OSError) as error:  # nothing is known: all stays open
            self._may_watch = not (isinstance(error, KubeClusterError) and error.status == FORBIDDEN)
            return False
        return True

    async def _find_pod(self) -> SchedulerPod | None:
        """The pod to connect to: the youngest that is ready; else that of before, if it is still there.

        Before there was one: the youngest, which answered already though the kubelet has not looked yet.
        """
        now = self._timing.clock.monotonic()
        if self._pod is not None and now < self._found + self._timing.forward_find_seconds:
            return self._pod
        try:
            pods = await scheduler_pods(self._server, self._cluster)
        except KubeClusterError:
            if self._pod is None:
                raise
            return self._pod  # it may be connected to, though not be looked up
        before = self._pod.uid if self._pod else ""
        wanted = [pod for pod in pods if pod.is_ready] or [pod for pod in pods if before in ("", pod.uid)]
        pod = next(iter(wanted), None)
        self._found = -math.inf if pod is None or not pod.is_ready else now
        return pod

    async def _check(self) -> None:
        self._pod = await self._find_pod()
        if self._pod is None:
            raise KubeClusterError(
                f"cannot forward port {self._port} to the scheduler of cluster {self._cluster!r}",
                reason=_NO_POD,
                next_step="See why: kubectl describe gpudaskcluster"
                f" {self._cluster} -n {self._server.namespace}, or try again",
                status=NOT_FOUND,
            )
        async with open_port(self._server, self._pod.name, self._port):
            pass

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = ""
        self._is_used.set()
        try:
            with requests_for(Purpose.UPKEEP):
                await self._serve(task, reader, writer)
        except asyncio.CancelledError:
            pass  # stop() cut it; asyncio would log a cancelled callback as an error
        finally:
            self._connections.pop(task, None)
            self._found = -math.inf  # it may have ended with its pod
            if not self._connections:
                self._is_used.clear()
            writer.close()

    async def _serve(
        self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        pause_seconds = self._timing.forward_retry_seconds
        try:
            async with asyncio.timeout(self._limit_seconds) as limit:
                while not await self._try_pod(task, reader, writer, limit):
                    await self._timing.clock.sleep(pause_seconds)
                    pause_seconds = min(self._timing.forward_most_seconds, 2 * pause_seconds)
        except TimeoutError:
            self.trouble = self.trouble or f"no answer from it within {self._limit_seconds:g} s"
            logger.debug("forwarding to %s, port %d, is given up: %s", self._cluster, self._port, self.trouble)

    async def _try_pod(
        self,
        task: asyncio.Task[None],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        limit: asyncio.Timeout,
    ) -> bool:
        """True if the connection reached a pod, and is over; else it may be tried again."""

        def reach() -> None:
            self.trouble = ""
            limit.reschedule(None)

        try:
            pod = await self._find_pod()
            if pod is None:
                self.trouble = _NO_POD
                return False
            async with open_port(self._server, pod.name, self._port, limit_seconds=self._limit_seconds) as opened:
                self._pod, self._connections[task] = pod, pod.uid
                self.trouble = f"nothing answers at port {self._port} of pod {pod.name}"
                if not self._expects_handshake:
                    reach()
                self._found = self._timing.clock.monotonic()
                await pump(reader, writer, opened, reach, self._timing)
        except (KubeClusterError, OSError) as error:
            self._found = -math.inf
            if not self._connections[task]:
                self.trouble = error.reason if isinstance(error, KubeClusterError) else str(error)
                return False
            logger.debug("what was forwarded to %s broke: %r", self._cluster, error)
        return True  # also where it broke: bytes may have been lost


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
        except httpx_ws.HTTPXWSException as error:
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
