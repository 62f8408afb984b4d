"""A cluster's pods as the API server knows them, and their logs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self

from gpudask.api import Json
from gpudask.api.resource import LABEL_CLUSTER, LABEL_DASK_COMPONENT, LABEL_POOL, PLURAL, controller_uid
from gpudask.kubecluster.errors import KubeClusterError, why_pod_waits
from gpudask.kubecluster.kube.pod_log import MOST_LINE_BYTES, decoded, split_lines
from gpudask.kubecluster.kube.request import Connection

CONTAINER = "dask"
_ENDED = ("Succeeded", "Failed")
_LOGS_AT_ONCE = 10


@dataclass(frozen=True)
class SchedulerPod:
    """A scheduler pod by its uid: a scheduler's successor may bear its name again, but has another uid.

    `is_ready`: it takes connections. One that is busy for long does not, and is still there.
    """

    name: str
    uid: str
    is_ready: bool


async def list_pods(server: Connection, name: str, uid: str, *, component: str = "", pool: str = "") -> list[Json]:
    """The pods that the cluster `name` with this uid controls, by their names.

    Those of a cluster of this name that was deleted have the same labels, and run until the garbage collector is there.

    Args:
        server: whose namespace is asked.
        name: the cluster's.
        uid: the cluster's; empty where it is not known: those of any cluster of this name.
        component: `scheduler` or `worker`; both without it.
        pool: only that pool's.
    """
    return _controlled(await _list_labelled(server, name, component, pool), uid)


async def _list_labelled(server: Connection, name: str, component: str, pool: str) -> list[Json]:
    answer = await server.call("list", "pods", params=_selected(name, component, pool))
    return sorted(answer["items"], key=lambda pod: str(pod["metadata"]["name"]))


def _controlled(pods: list[Json], uid: str) -> list[Json]:
    controllers = [(pod, controller_uid(pod["metadata"])) for pod in pods]
    return [pod for pod, controller in controllers if controller and uid in ("", controller)]


class ClusterPods:
    """The pods of one cluster, for who asks again and again while the cluster may be made again under its name.

    Args:
        server: whose namespace is asked.
        name: the cluster's.
        uid: the cluster's as last seen; empty where it is not known.
    """

    def __init__(self, server: Connection, name: str, uid: str) -> None:
        self._server, self._name, self._uid = server, name, uid

    async def find(self, *, component: str = "", pool: str = "") -> list[Json]:
        """As `list_pods`; where there are others, the cluster is read: they may be its own by now."""
        pods = await _list_labelled(self._server, self._name, component, pool)
        if len(_controlled(pods, self._uid)) < len(pods):
            with contextlib.suppress(KubeClusterError):  # it is gone, or may not be read: the last that was seen counts
                body = await self._server.call("get", PLURAL, self._name)
                self._uid = str(body["metadata"]["uid"])
        return _controlled(pods, self._uid)

    async def schedulers(self) -> list[SchedulerPod]:
        """The scheduler pods that have not ended, the youngest first.

        While a scheduler is being replaced there may be two: the younger one is there to stay.
        """
        pods = await self.find(component="scheduler")
        pods.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)
        return [
            SchedulerPod(pod["metadata"]["name"], pod["metadata"]["uid"], is_ready(pod))
            for pod in pods
            if not _has_ended(pod)
        ]


async def follow_scheduler(server: Connection, name: str) -> AsyncGenerator[set[str], None]:
    """The uids of the scheduler pods of cluster `name`: those that there are, and again after each change.

    Also of other clusters of this name: it says which pods are gone, not whose they are.
    It costs two requests, and ends after `watch_seconds`, some minutes.

    Raises:
        KubeClusterError: the server refuses, or the connection breaks. Where pods may be listed and not watched, after
            the first uids.
    """
    params = _selected(name, "scheduler", "")
    answer = await server.call("list", "pods", params=params)
    uids = {str(pod["metadata"]["uid"]) for pod in answer["items"] if not _has_ended(pod)}
    yield set(uids)
    since = str(answer.get("metadata", {}).get("resourceVersion", ""))
    async with aclosing(server.events("pods", since, params=params)) as events:
        async for kind, pod in events:
            is_gone = kind == "DELETED" or _has_ended(pod)
            (uids.discard if is_gone else uids.add)(str(pod["metadata"]["uid"]))
            yield set(uids)


class SchedulerNews:
    """Wakes who waits for a scheduler when something changed about its pods, so that nobody has to look often.

    Attributes:
        is_told: whether changes are told: it takes the right to watch pods.
    """

    def __init__(self, server: Connection, name: str) -> None:
        self.is_told = False
        self._server, self._name = server, name
        self._changed = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[Self]:
        """Follow the changes while the block runs, from the first wait on."""
        try:
            yield self
        finally:
            if self._following is not None:
                self._following.cancel()
                await asyncio.wait([self._following])

    async def wait(self, seconds: float) -> None:
        """Wait until something changed since the last call, or so many seconds have passed."""
        if self._following is None:
            self._following = asyncio.create_task(self._follow())
        clock = self._server.timing.clock
        ways = [asyncio.ensure_future(clock.sleep(seconds)), asyncio.ensure_future(self._changed.wait())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
        self._changed.clear()

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(KubeClusterError):
                async with aclosing(follow_scheduler(self._server, self._name)) as states:
                    async for _ in states:
                        self.is_told = True
                        self._changed.set()
            self.is_told = False
            await self._server.timing.clock.sleep(self._server.timing.watch_pause_seconds)


def _has_ended(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") in _ENDED


def _selected(name: str, component: str, pool: str) -> dict[str, str]:
    labels = {LABEL_CLUSTER: name, LABEL_DASK_COMPONENT: component, LABEL_POOL: pool}
    return {"labelSelector": ",".join(f"{label}={value}" for label, value in labels.items() if value)}


def has_started(pod: Json) -> bool:
    """True if a pod is Running, and not terminating."""
    return pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def is_ready(pod: Json) -> bool:
    """True if a pod is Running and Ready, and not terminating."""
    conditions = {item["type"]: item["status"] for item in pod.get("status", {}).get("conditions", [])}
    return has_started(pod) and conditions.get("Ready") == "True"


async def read_log(
    server: Connection,
    pod: str,
    *,
    tail: int | None = None,
    since_seconds: int | None = None,
    previous: bool = False,
    container: str = CONTAINER,
) -> list[str]:
    """The lines of a pod's log.

    Args:
        server: whose namespace is asked.
        pod: its name.
        tail: only that many lines from the end.
        since_seconds: only lines that are no older.
        previous: of the container before its last restart; the server answers 400 where there was none.
        container: sidecars have logs of their own.
    """
    options = _log_options(tail, since_seconds, container) | ({"previous": "true"} if previous else {})
    return [line async for line in _lines(server, pod, options, silence_seconds=0)]


async def follow_log(
    server: Connection,
    pod: str,
    *,
    tail: int | None = None,
    since_seconds: int | None = None,
    container: str = CONTAINER,
) -> AsyncGenerator[str, None]:
    """The lines of a pod's log as they come, until its container ends."""
    options = _log_options(tail, since_seconds, container) | {"follow": "true"}
    async with aclosing(_lines(server, pod, options, silence_seconds=None)) as lines:
        async for line in lines:
            yield line


async def _lines(
    server: Connection, pod: str, options: dict[str, str], *, silence_seconds: float | None
) -> AsyncGenerator[str, None]:
    read = server.chunks("get", "pods", pod, subresource="log", params=options, silence_seconds=silence_seconds)
    async with aclosing(read) as chunks:
        async for line in split_lines(chunks):
            yield decoded(line, is_cut=len(line) > MOST_LINE_BYTES)


async def read_logs(
    server: Connection, name: str, uid: str, *, scheduler: bool, workers: bool, pool: str, tail: int | None
) -> dict[str, str]:
    """The logs of cluster `name`'s pods by pod name, ended ones too; of a pod without any, what it waits for.

    Args:
        server: where.
        name: the cluster's.
        uid: the cluster's as last seen; empty where it is not known.
        scheduler: the scheduler's.
        workers: the workers'.
        pool: only that pool's; empty for all.
        tail: only that many lines of each from the end.

    Raises:
        KubeClusterError: the server refuses, or no log at all can be read. One of several that cannot be read says so.
    """
    if not (scheduler or workers):
        return {}
    component = "" if scheduler and workers else "worker" if workers else "scheduler"
    gate = asyncio.Semaphore(_LOGS_AT_ONCE)

    async def one(pod: Json) -> str | KubeClusterError:
        async with gate:
            try:
                return "\n".join(await read_log(server, pod["metadata"]["name"], tail=tail))
            except KubeClusterError as error:
                if error.status == HTTPStatus.BAD_REQUEST:  # the server's word for a container that never ran
                    return f"no log yet: {why_pod_waits(pod) or error.reason}"
                if error.status == HTTPStatus.NOT_FOUND:
                    return "no log: the pod has gone meanwhile"
                if not error.may_pass:
                    raise
                return error

    pods = await ClusterPods(server, name, uid).find(component=component, pool=pool)
    texts = await asyncio.gather(*(one(pod) for pod in pods))
    unread = [text for text in texts if isinstance(text, KubeClusterError)]
    if unread and len(unread) == len(pods):
        raise unread[0]
    return {pod["metadata"]["name"]: _log_or_reason(text) for pod, text in zip(pods, texts, strict=True)}


def _log_or_reason(text: str | KubeClusterError) -> str:
    return text if isinstance(text, str) else f"not read: {text.reason}"


def _log_options(tail: int | None, since_seconds: int | None, container: str) -> dict[str, str]:
    limits = {"tailLines": tail, "sinceSeconds": since_seconds}
    return {"container": container} | {name: str(limit) for name, limit in limits.items() if limit is not None}
