"""The last lines of pods' logs: read once where a container has ended, followed where a pod is about to be gone."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import aclosing
from functools import partial

from gpudask.api.record import MAX_LOG
from gpudask.clients.errors import ApiError
from gpudask.clients.flow_control import FairQueue
from gpudask.clients.kubernetes import Kubernetes
from gpudask.history.ends import LogSource, PodEnd, with_log
from gpudask.planning.observed.pods import Pod
from gpudask.reconcile.supervisor import Supervisor

_LOG = logging.getLogger(__name__)
_LINES = 60
# The API server counts bytes from the first of the lines that are asked for: with few the end would be missing.
_READ_BYTES, _FOLLOWED_BYTES = 262_144, 4_194_304
_KEPT_BYTES = 4 * MAX_LOG
_FOLLOWED_AT_ONCE = 16  # logs of one cluster: each is a connection to its node
_LEFT_OUT_KEPT = 100  # pods whose log was one too many: of more ends than that none is recorded
_AFTER_GRACE_SECONDS = 30.0
# After a pod is gone the end of its log is on its way for a moment, and no longer.
_REST_SECONDS = 1.0
_MANY = "no log: many pods ended at once"
_AT_ONCE = "no log: the pod was gone at once"


class _Followed:
    """A log that is being followed: its end so far."""

    def __init__(self) -> None:
        self.end = bytearray()
        self.error = ""
        self.task: asyncio.Task[None] | None = None

    def add(self, chunk: bytes) -> None:
        self.end += chunk
        if len(self.end) > 2 * _KEPT_BYTES:
            del self.end[:-_KEPT_BYTES]

    @property
    def text(self) -> str:
        return bytes(self.end).decode(errors="replace")


class PodLogs:
    """The logs of one cluster's pods. `connections`: bounds those that are followed at once, of all clusters."""

    def __init__(self, api: Kubernetes, supervisor: Supervisor, cluster: str, connections: FairQueue) -> None:
        self._api = api
        self._connections = connections
        self._supervisor = supervisor
        self._cluster = cluster
        self._followed: dict[str, _Followed] = {}  # by the pod's uid
        self._left_out: deque[str] = deque(maxlen=_LEFT_OUT_KEPT)  # uids of pods that ended beside too many others

    def follow(self, pod: Pod) -> None:
        """Read the log of a pod that is about to be gone, until its container ends."""
        if pod.uid in self._followed:
            return
        if len(self._running) >= _FOLLOWED_AT_ONCE:
            self._left_out.append(pod.uid)
            return
        followed = self._followed[pod.uid] = _Followed()
        follow = partial(self._follow, pod, followed)
        followed.task = self._supervisor.start(follow, kind="log", name=f"{self._cluster}: {pod.name}", may_end=True)

    async def complete(self, end: PodEnd) -> PodEnd:
        """`end` with the last lines of its log, or with why there are none. It never fails."""
        if end.restarted:
            return await self._completed(end, None)
        completed = await self._completed(end, self._followed.get(end.pod.uid))
        self._followed.pop(end.pod.uid, None)  # not before: who is cancelled while it waits asks again
        return completed

    async def read_present(self, ends: list[PodEnd], *, at_once: int) -> None:
        """Read the logs of containers that ended in pods which are still there, each into its place in `ends`."""
        turns = asyncio.Semaphore(at_once)

        async def read(index: int, end: PodEnd) -> None:
            async with turns:
                ends[index] = await self.read(end, previous=end.source is LogSource.PREVIOUS)

        there = [read(n, end) for n, end in enumerate(ends) if end.source in (LogSource.CURRENT, LogSource.PREVIOUS)]
        await asyncio.gather(*there)

    async def _completed(self, end: PodEnd, followed: _Followed | None) -> PodEnd:
        if end.source is LogSource.KNOWN:
            await self._end(followed)
            return end
        if followed is not None and end.source is not LogSource.NONE:
            await self._end(followed)
            if followed.end:
                return with_log(end, followed.text)
        if end.source is LogSource.FOLLOWED:
            # Between two passes a pod may begin to end and be gone: nobody saw it while there was a log to follow.
            never = _MANY if end.pod.uid in self._left_out else _AT_ONCE
            return with_log(end, "", never if followed is None else followed.error)
        if end.source in (LogSource.CURRENT, LogSource.PREVIOUS):
            return await self.read(end, previous=end.source is LogSource.PREVIOUS)
        return end

    @property
    def is_following(self) -> bool:
        """Whether a log is being followed that has not ended."""
        return bool(self._running)

    @property
    def _running(self) -> list[asyncio.Task[None]]:
        return [item.task for item in self._followed.values() if item.task is not None and not item.task.done()]

    async def wait(self, seconds: float) -> None:
        """Wait for the ends of the logs that are followed, for so long at most."""
        if running := self._running:
            await asyncio.wait(running, timeout=seconds)

    def so_far(self, end: PodEnd) -> PodEnd:
        """`end` with what was read of its log by now."""
        if end.source in (LogSource.KNOWN, LogSource.NONE):
            return end
        followed = self._followed.get(end.pod.uid) if not end.restarted else None
        if followed is None:
            return with_log(end, "", _MANY)
        return with_log(end, followed.text, followed.error)

    async def read(self, end: PodEnd, *, previous: bool = False) -> PodEnd:
        """`end` with the last lines of the log as it is now."""
        pod = end.pod
        try:
            log = await self._api.read_log(
                pod.namespace, pod.name, lines=_LINES, at_most=_READ_BYTES, previous=previous
            )
        except ApiError as error:
            return with_log(end, "", _no_log(error))
        return with_log(end, log)

    async def stop(self) -> None:
        """Follow no log any more; returns when that has ended."""
        running = self._running
        for task in running:  # all before it waits for any: who ends has little time
            task.cancel()
        self._followed.clear()
        if running:
            await asyncio.wait(running)

    async def _end(self, followed: _Followed | None, seconds: float = _REST_SECONDS) -> None:
        """Wait a moment for the end of a log whose pod has ended, and read no more of it."""
        if followed is None or followed.task is None:
            return
        if seconds:
            await asyncio.wait([followed.task], timeout=seconds)
        followed.task.cancel()
        await asyncio.wait([followed.task])

    async def _follow(self, pod: Pod, followed: _Followed) -> None:
        seconds = pod.grace_seconds + _AFTER_GRACE_SECONDS
        reading = self._api.follow_log(pod.namespace, pod.name, lines=_LINES, at_most=_FOLLOWED_BYTES, seconds=seconds)
        followed.error = _MANY
        try:
            async with self._connections.slot(), aclosing(reading) as chunks:
                followed.error = ""
                async for chunk in chunks:
                    followed.add(chunk)
        except ApiError as error:
            followed.error = _no_log(error)
            _LOG.info("%s: the log of %s: %s", self._cluster, pod.name, error)


def _no_log(error: ApiError) -> str:
    if error.status == 0:
        return "no log: the API server did not answer"
    if error.forbidden:
        return "no log: the operator may not read logs (its role lacks get of pods/log)"
    if error.not_found:
        return _AT_ONCE
    return "no log: its node has it no more, or does not answer"
