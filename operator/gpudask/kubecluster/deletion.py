"""Deletion of the clusters that go with this program: by their uid, where they were made, also when it ends.

`OwnCluster` is one of them, from before the request that creates it: where the answer to that is lost, an id of this
program's own tells whether a cluster of its name is its own.

What is left goes when Python ends, by Ctrl-C, an exception or by itself, and by SIGTERM and SIGHUP where the program
does not handle them. Python starts no threads then, and event loops may be gone: a thread that waits from the first
cluster on does the work, and the main thread waits for it, so that Ctrl-C interrupts the wait and not the work. A
forked child has none of this: its parent's clusters are not its own.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import math
import os
import secrets
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from queue import SimpleQueue
from types import FrameType
from typing import Any, Self

from gpudask.api import Json
from gpudask.api.resource import ANNOTATION_CREATION
from gpudask.kubecluster.errors import KubeClusterError, KubeClusterTimeoutError
from gpudask.kubecluster.kube.pods import list_pods
from gpudask.kubecluster.kube.request import CONFLICT, FORBIDDEN
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.timing import Deadline

logger = logging.getLogger(__name__)

_INTERRUPTS_TO_GIVE_UP = 2
_MARGIN_SECONDS = 1.5  # for the thread to say itself why it was in vain
_TICK_SECONDS = 0.1  # Windows does not interrupt a longer wait for a thread


class OwnCluster:
    """A cluster that goes with this program: one that it creates, or found and was told to delete.

    Args:
        server: where it is; it is deleted there and nowhere else, whatever the kubeconfig says by then.
        name: its name.
        uid: of one that exists; empty for one that is to be created.

    Attributes:
        uid: empty until the API server has said it.
    """

    def __init__(self, server: Server, name: str, *, uid: str = "") -> None:
        self.server, self.name, self.uid = server, name, uid
        self._creation_id = "" if uid else secrets.token_hex(16)
        self._timing = server.timing
        self._known_by = math.inf  # of the monotonic clock: if it was created, it is there by then

    def __str__(self) -> str:
        return f"cluster {self.name!r} in namespace {self.server.namespace!r}"

    @property
    def delete_command(self) -> str:
        """What a person types to delete it."""
        return f"gpudask delete {self.name} -n {self.server.namespace}"

    # ------------------------------------------------------------------ creation

    async def create(self, body: Json) -> Json:
        """Create it, and return it as it is; also where its name shows that an answer which was lost was yes.

        When the caller is cancelled, the request goes on for `creation_seconds`: its answer says what to delete.

        Raises:
            KubeClusterError: as `Server.create`.
        """
        metadata = dict(body["metadata"])
        metadata["annotations"] = {**(metadata.get("annotations") or {}), ANNOTATION_CREATION: self._creation_id}
        request = asyncio.ensure_future(self.server.create({**body, "metadata": metadata}))
        request.add_done_callback(self._note)
        try:
            return await asyncio.shield(request)
        except asyncio.CancelledError:
            try:
                await asyncio.wait([request], timeout=self._timing.creation_seconds)
            finally:
                request.cancel()
                self._is_unanswered()
            raise
        except KubeClusterError as error:
            if error.status != CONFLICT and not error.may_pass:
                raise
            found = await self._find_created()
            if found is None:
                if error.status == CONFLICT:  # somebody else's
                    at_exit.discard(self)
                raise
            return found

    def _is_unanswered(self) -> None:
        self._known_by = self._timing.clock.monotonic() + self._timing.creation_seconds

    def _note(self, request: asyncio.Future[Json]) -> None:
        self._is_unanswered()
        error = None if request.cancelled() else request.exception()
        if isinstance(error, KubeClusterError) and error.status != CONFLICT and not error.may_pass:
            at_exit.discard(self)  # it was refused
        elif error is None and not request.cancelled():
            self.uid = uid_of(request.result())

    async def _find_created(self) -> Json | None:
        """The cluster of its name, if it bears the id of this creation."""
        with contextlib.suppress(KubeClusterError):
            found = await self.server.find(self.name)
            if found is not None and _creation_id_of(found) == self._creation_id:
                self.uid = uid_of(found)
                return found
        return None

    # ------------------------------------------------------------------ deletion

    async def delete(self, limit_seconds: float, server: Server | None = None) -> None:
        """Delete it; one that is gone, or was made anew by somebody else since, is left alone.

        Args:
            limit_seconds: for an API server that does not answer to be back.
            server: the same, connected in another event loop.

        Raises:
            KubeClusterError: it may still be there.
        """
        deadline = Deadline(limit_seconds, self._timing)
        try:
            async with asyncio.timeout(limit_seconds):
                while not await deadline.attempt(self._delete_once(server or self.server)):
                    await self._timing.clock.sleep(self._timing.retry_seconds)
        except TimeoutError as error:
            raise KubeClusterTimeoutError(
                f"{self} was not deleted",
                reason=deadline.trouble or f"{self.server.session.address} does not answer",
                next_step=f"Delete it later: {self.delete_command}",
                unanswered=True,
            ) from error
        except KubeClusterError as error:
            raise KubeClusterError(
                f"{self} was not deleted",
                reason=error.reason,
                next_step=f"{error.next_step}. Then delete it: {self.delete_command}",
                status=error.status,
            ) from error
        at_exit.discard(self)

    async def _delete_once(self, server: Server) -> bool:
        """True if it is gone now, and will not come any more."""
        uid = self.uid
        if not uid:
            # Of the time before the question: it may come while the answer that it is not there is on its way.
            is_last_look = self._timing.clock.monotonic() > self._known_by
            found = await server.find(self.name)
            uid = uid_of(found) if found and _creation_id_of(found) == self._creation_id else ""
            if not uid:
                return is_last_look
        try:
            await server.delete(self.name, uid=uid)
        except KubeClusterError as error:
            if error.status != CONFLICT:
                raise
            return uid_of(await server.find(self.name) or {}) != uid
        return True

    async def wait_until_gone(self, deadline: Deadline) -> None:
        """Wait until the resource and its pods are gone.

        Raises:
            KubeClusterTimeoutError: they are not in time.
        """
        while (left := await deadline.attempt(self._left())) != []:
            if deadline.is_over:
                raise KubeClusterTimeoutError(
                    f"{self} was deleted, but is not gone within {deadline.limit_seconds:g} s",
                    reason=deadline.trouble or f"there are still: {', '.join(left or [])}",
                    next_step=f"Wait longer: close(timeout=600), or see: kubectl get pods -n {self.server.namespace}",
                )
            await self._timing.clock.sleep(self._timing.retry_seconds)

    async def _left(self) -> list[str]:
        """What is left of it; pods only where they may be listed."""
        found = await self.server.find(self.name)
        if found is not None and uid_of(found) == self.uid:
            return [f"cluster {self.name}"]
        try:
            pods = await list_pods(self.server, self.name, self.uid) if self.uid else []
        except KubeClusterError as error:
            if error.status != FORBIDDEN:
                raise
            return []
        return [f"pod {pod['metadata']['name']}" for pod in pods]


@dataclass
class _Work:
    """Clusters to delete, and what became of it.

    Attributes:
        is_done: also where some failed.
        failures: why.
    """

    clusters: list[OwnCluster]
    is_done: threading.Event = field(default_factory=threading.Event)
    failures: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Delete them, in this thread and an event loop of its own."""
        try:
            with asyncio.Runner(loop_factory=_Loop) as runner:
                runner.run(self._delete_all())
        finally:
            self.is_done.set()

    async def _delete_all(self) -> None:
        await asyncio.gather(*(self._delete(cluster) for cluster in self.clusters))

    async def _delete(self, cluster: OwnCluster) -> None:
        session = cluster.server.session.copy()  # the one that it was created with is of another event loop
        try:
            try:
                await cluster.delete(session.timing.exit_seconds, Server(session, cluster.server.namespace))
            finally:
                await session.close()
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are deleted all the same
            if isinstance(error, KubeClusterError):
                self.failures.append(str(error))
            else:
                self.failures.append(f"{cluster} was not deleted: {error!r}. Delete it: {cluster.delete_command}")


# Under Windows, the one that starts credential plugins.
_Base: Any = getattr(asyncio, "ProactorEventLoop", asyncio.SelectorEventLoop)


class _Loop(_Base):  # type: ignore[misc]
    """An event loop that looks names up without another thread: Python that ends starts none."""

    async def getaddrinfo(self, *arguments: Any, **options: Any) -> Any:
        """As `socket.getaddrinfo`."""
        return socket.getaddrinfo(*arguments, **options)


class ExitDeletion:
    """The clusters of this process that are still to be deleted, and the thread that does it when it ends."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all, in the child of a fork: they are its parent's, and it has no thread for them."""
        self._process = os.getpid()
        self._clusters: set[OwnCluster] = set()
        self._orders: SimpleQueue[_Work] = SimpleQueue()  # `put` may interrupt `put`: the garbage collector may call it
        self._thread: threading.Thread | None = None

    @property
    def clusters(self) -> list[OwnCluster]:
        """Those of this process; none in a child that was forked without Python's knowing."""
        return sorted(self._clusters, key=str) if self._process == os.getpid() else []

    def __contains__(self, cluster: OwnCluster | None) -> bool:
        return cluster in self._clusters and self._process == os.getpid()

    def add(self, cluster: OwnCluster) -> None:
        """Delete `cluster` when this process ends, unless it is discarded before."""
        if self._process != os.getpid():
            self.forget()
        self._clusters.add(cluster)
        if self._thread is None:
            # A daemon: Python goes on to end, and calls what was registered with atexit, while it waits.
            self._thread = threading.Thread(
                target=self._work, args=[self._orders], name="gpudask-deletion", daemon=True
            )
            self._thread.start()

    def discard(self, cluster: OwnCluster) -> None:
        """It is gone, or is to stay."""
        self._clusters.discard(cluster)

    def follow(self, holder: object, cluster: OwnCluster) -> None:
        """Delete `cluster` when `holder` is garbage: nobody can close it any more."""
        weakref.finalize(holder, self._drop, cluster).atexit = False

    def _drop(self, cluster: OwnCluster) -> None:
        if cluster in self:
            self._orders.put(_Work([cluster]))

    @staticmethod
    def _work(orders: SimpleQueue[_Work]) -> None:
        while True:
            work = orders.get()
            try:
                work.run()
            except Exception:  # the thread has to be there for the next
                logger.exception("gpudask: clusters could not be deleted")

    def delete_all(self) -> None:
        """Delete all now, and wait for it, `exit_seconds` at most and not beyond a second interrupt; say so."""
        if not (clusters := self.clusters):
            return
        work = _Work(clusters)
        self._orders.put(work)
        with _Interrupts() as interrupts:
            _wait(work, interrupts)


def _wait(work: _Work, interrupts: _Interrupts) -> None:
    timing = work.clusters[0].server.timing
    begin = timing.clock.monotonic()
    listed = ", ".join(map(str, work.clusters))
    is_said, told = False, 0
    while not work.is_done.wait(_TICK_SECONDS):
        spent_seconds = timing.clock.monotonic() - begin
        if not is_said and spent_seconds > timing.notice_seconds:
            is_said = True
            say(f"waiting up to {timing.exit_seconds:g} s until the API server has deleted {listed}")
        if interrupts.count >= _INTERRUPTS_TO_GIVE_UP or spent_seconds > timing.exit_seconds + _MARGIN_SECONDS:
            _give_up(work.clusters)
            return
        if interrupts.count > told:
            told = interrupts.count
            say(f"still deleting {listed}; once more, and it is left")
    for failure in work.failures:
        say(failure)


def _give_up(clusters: Iterable[OwnCluster]) -> None:
    for cluster in clusters:
        say(
            f"{cluster} may be left. Delete it: {cluster.delete_command}. Else the operator does, where its"
            " spec.idle says so"
        )


def say(text: str) -> None:
    """Tell whoever waits, on standard error."""
    with contextlib.suppress(OSError, ValueError, RuntimeError, AttributeError):  # a terminal that is gone, or none
        sys.stderr.write(f"gpudask: {text}\n")
        sys.stderr.flush()


class _Interrupts:
    """Ctrl-C, SIGTERM and SIGHUP are counted meanwhile, and do nothing else.

    Attributes:
        count: how many came.
    """

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, *_SIGNALS):
            if _is_main_thread() and signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _note(self, *_: object) -> None:
        self.count += 1


_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def handle_signals() -> None:
    """Delete what is to be deleted before SIGTERM or SIGHUP ends this process; a program's own handlers stay.

    Only in the main thread, where Python can.
    """
    for number in _SIGNALS:
        # A container's first process outlives SIGHUP without a handler, and its clusters with it.
        lives_on = os.getpid() == 1 and number != signal.SIGTERM
        if _is_main_thread() and signal.getsignal(number) is signal.SIG_DFL and not lives_on:
            signal.signal(number, _end)


def _end(number: int, _: FrameType | None) -> None:
    """Do as without a handler, after the deletion. Not SystemExit: a notebook's cell would catch it, and live on."""
    at_exit.delete_all()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    os._exit(128 + number)  # a container's first process, which no signal of its own ends


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _after_fork() -> None:
    at_exit.forget()
    for number in _SIGNALS:
        if signal.getsignal(number) is _end:
            with contextlib.suppress(ValueError):
                signal.signal(number, signal.SIG_DFL)


def uid_of(body: Json) -> str:
    """The uid of a cluster; empty where there is none."""
    metadata = body.get("metadata")
    uid = metadata.get("uid") if isinstance(metadata, dict) else None
    return uid if isinstance(uid, str) else ""


def _creation_id_of(body: Json) -> str:
    metadata = body.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    creation_id = annotations.get(ANNOTATION_CREATION) if isinstance(annotations, dict) else None
    return creation_id if isinstance(creation_id, str) else ""


at_exit = ExitDeletion()
atexit.register(at_exit.delete_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
