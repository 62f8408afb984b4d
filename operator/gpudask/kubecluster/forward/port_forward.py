"""A local port forwarded to the scheduler pod, also when it is replaced; connections that do not answer are cut.

The listening socket lives as long as the object. Each connection to it finds the scheduler's present pod and
opens a websocket of its own, so a lost one costs one connection, which Dask's client makes again by itself. A dashboard
is asked again and again by programs that open a connection each time: these share one websocket (`keep_alive.py`), and
the pod is looked up again after a failure.

A pod's end does not always end what is forwarded to it: its network can go before its last packets do, and then both
sides wait. So while anything is open the pods are watched, and what leads to one that is gone is cut.

A program that reads slowly keeps its connection, as with kubectl: that a ping is not answered says nothing while what
came before it is not taken.

Dask gives a connection that was taken all the time it has: what leads nowhere is cut soon, so that it tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.forward.keep_alive import KeptConnection, serve
from gpudask.kubecluster.forward.pod_port import open_port, pump
from gpudask.kubecluster.kube.pods import ClusterPods, SchedulerPod, follow_scheduler
from gpudask.kubecluster.kube.request import FORBIDDEN, NOT_FOUND
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.kube.session import Purpose, requests_for

logger = logging.getLogger(__name__)

_NO_POD = "it has no pod that runs"


class PortForward:
    """127.0.0.1:`local_port` -> `port` of the scheduler pod of `cluster`.

    Args:
        server: through which it leads.
        cluster: whose scheduler.
        uid: the cluster's as last seen; empty where it is not known.
        port: of its pod.
        local_port: of this machine; 0: any that is free.
        limit_seconds: a connection that has not reached a pod by then is cut; None: 8 s.
        expects_handshake: one to which the pod has sent nothing by then is cut, too: a Dask scheduler answers a
            handshake, while a browser may open a connection long before it asks for anything.
        serves_http: requests that come one by one share a connection to the pod; what is no HTTP is forwarded as it is.

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
        uid: str,
        limit_seconds: float | None = None,
        expects_handshake: bool = False,
        serves_http: bool = False,
    ) -> None:
        self.local_port = local_port
        self.trouble = ""
        self._timing = server.timing
        self._limit_seconds = self._timing.forward_seconds if limit_seconds is None else limit_seconds
        self._expects_handshake = expects_handshake
        self._serves_http = serves_http
        self._server = server
        self._cluster = cluster
        self._pods = ClusterPods(server, cluster, uid)
        self._port = port
        self._pod: SchedulerPod | None = None  # the last that was connected to
        self._found = -math.inf  # when, by the monotonic clock
        self._is_used = asyncio.Event()
        self._may_watch = True
        self._listener: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], str] = {}  # the uid of its pod; empty until it is connected
        self._watching: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None  # opens what is kept, and ends with it
        self._kept: KeptConnection | None = None

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
        is_recent = now < self._found + self._timing.forward_find_seconds
        # What is kept is cut when its pod goes.
        if self._pod is not None and (is_recent or (self._kept is not None and self._found > -math.inf)):
            return self._pod
        try:
            pods = await self._pods.schedulers()
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
                first = await serve(reader, writer, self._find_kept) if self._serves_http else b""
                if first is not None:
                    await self._serve(task, reader, writer, first)
        except asyncio.CancelledError:
            pass  # stop() cut it; asyncio would log a cancelled callback as an error
        finally:
            if not self._serves_http:
                self._found = -math.inf  # it may have ended with its pod
            self._forget(task)
            writer.close()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._connections.pop(task, None)
        if not self._connections:
            self._is_used.clear()

    async def _find_kept(self) -> KeptConnection | None:
        """The connection that is kept, a new one where there is none; None where it is busy or cannot be opened."""
        if self._keeping is not None and not self._keeping.done():
            return self._kept if self._kept is not None and self._kept.is_free else None
        opened: asyncio.Future[KeptConnection | None] = asyncio.get_running_loop().create_future()
        self._keeping = task = asyncio.create_task(self._keep(opened))
        self._connections[task] = ""
        self._is_used.set()
        return await opened

    async def _keep(self, opened: asyncio.Future[KeptConnection | None]) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            pod = await self._find_pod()
            if pod is None:
                return
            async with open_port(self._server, pod.name, self._port, limit_seconds=self._limit_seconds) as port:
                self._connected(task, pod)
                self.trouble = ""
                self._kept = KeptConnection(port, self._timing)
                if not opened.done():
                    opened.set_result(self._kept)
                await self._kept.run()
        except (KubeClusterError, OSError) as error:  # whoever asked goes a way of its own, which says what is wrong
            logger.debug("no connection to %s is kept: %r", self._cluster, error)
        finally:
            self._kept = None
            self._found = -math.inf  # it may have ended with its pod
            self._forget(task)
            if not opened.done():
                opened.set_result(None)

    def _connected(self, task: asyncio.Task[None], pod: SchedulerPod) -> None:
        self._pod, self._connections[task] = pod, pod.uid
        self._found = self._timing.clock.monotonic()

    async def _serve(
        self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bytes
    ) -> None:
        pause_seconds = self._timing.forward_retry_seconds
        try:
            async with asyncio.timeout(self._limit_seconds) as limit:
                while not await self._try_pod(task, reader, writer, first, limit):
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
        first: bytes,
        limit: asyncio.Timeout,
    ) -> bool:
        """True if the connection reached a pod, and is over; else it may be tried again."""
        was_heard = False

        def reach() -> None:
            self.trouble = ""
            limit.reschedule(None)

        def hear() -> None:
            nonlocal was_heard
            was_heard = True
            reach()

        try:
            pod = await self._find_pod()
            if pod is None:
                self.trouble = _NO_POD
                return False
            async with open_port(self._server, pod.name, self._port, limit_seconds=self._limit_seconds) as opened:
                self._connected(task, pod)
                self.trouble = f"nothing answers at port {self._port} of pod {pod.name}"
                if not self._expects_handshake:
                    reach()
                if first:
                    await opened.send(first)
                await pump(reader, writer, opened, hear, self._timing)
            if not was_heard:
                self._found = -math.inf
        except (KubeClusterError, OSError) as error:
            self._found = -math.inf
            if not self._connections[task]:
                self.trouble = error.reason if isinstance(error, KubeClusterError) else str(error)
                return False
            logger.debug("what was forwarded to %s broke: %r", self._cluster, error)
        return True  # also where it broke: bytes may have been lost
