"""Watches beside the operator's: when each pod was there and ready, and which clusters say that they are ready.

Times are those at which this process heard of it, in `time.monotonic` seconds. `until` waits for what they tell.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any

from benchmarks.testbed.manifests import ADDRESS, CLUSTERS_PATH, CPU, NAMESPACE
from benchmarks.testbed.pods import SeenPod, SeenPods
from benchmarks.testbed.schedulers import FakeScheduler, FakeSchedulers
from gpudask.api.resource import ANNOTATION_DASK_NAME, LABEL_CLUSTER, LABEL_POOL
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes

Json = dict[str, Any]
_PAUSE_SECONDS = 0.02  # before a watch that the server ended is begun again
_PAUSE_AFTER_ERROR_SECONDS = 0.2
_POLL_SECONDS = 0.02
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class ClusterPods:
    """All pods of clusters. A worker that runs registers with its fake scheduler, and leaves it with its pod."""

    def __init__(self, schedulers: FakeSchedulers) -> None:
        self._schedulers = schedulers
        self._scheduler_by_cluster: dict[str, FakeScheduler] = {}
        self._early: dict[str, list[tuple[str, str]]] = {}  # by cluster: workers that run before their scheduler
        self.created_at: dict[str, float] = {}
        self.ready_at: dict[str, float] = {}

    def see(self, event: Json) -> None:
        """Take in one event of the watch."""
        metadata, status = event["object"]["metadata"], event["object"].get("status", {})
        name, now = metadata["name"], time.monotonic()
        cluster, pool = metadata["labels"][LABEL_CLUSTER], metadata["labels"].get(LABEL_POOL, "")
        if event["type"] == "DELETED":
            self.created_at.pop(name, None)
            ran = self.ready_at.pop(name, None) is not None
            if pool and ran and cluster in self._scheduler_by_cluster:
                self._scheduler_by_cluster[cluster].leave(metadata["annotations"][ANNOTATION_DASK_NAME])
            return
        self.created_at.setdefault(name, now)
        if status.get("phase") != "Running" or name in self.ready_at:
            return
        self.ready_at[name] = now
        if not pool:
            self._scheduler_by_cluster[cluster] = self._schedulers.by_address[metadata["annotations"][ADDRESS]]
            for waiting in self._early.pop(cluster, []):
                self._scheduler_by_cluster[cluster].register(*waiting)
            return
        worker = metadata["annotations"][ANNOTATION_DASK_NAME], pool
        if cluster in self._scheduler_by_cluster:
            self._scheduler_by_cluster[cluster].register(*worker)
        else:
            self._early.setdefault(cluster, []).append(worker)

    def scheduler_of(self, cluster: str) -> FakeScheduler:
        """The fake scheduler of a cluster whose scheduler pod runs."""
        return self._scheduler_by_cluster[cluster]


class ReadyClusters:
    """All clusters: which of them have said that they are ready, with all their fixed CPU workers."""

    def __init__(self) -> None:
        self.ready_at: dict[str, float] = {}

    def see(self, event: Json) -> None:
        """Take in one event of the watch."""
        body = event["object"]
        status = body.get("status", {})
        conditions = {item["type"]: item["status"] for item in status.get("conditions", ())}
        if conditions.get("Ready") != "True":
            return
        pools = {pool["name"]: pool for pool in status["pools"]}
        wanted = next(pool["replicas"] for pool in body["spec"]["pools"] if pool["name"] == CPU)
        if pools[CPU].get("ready", 0) >= wanted:
            self.ready_at.setdefault(body["metadata"]["name"], time.monotonic())


@contextlib.asynccontextmanager
async def watching(
    api: Kubernetes, pods: Callable[[Json], None], clusters: Callable[[Json], None]
) -> AsyncIterator[None]:
    """Both watches are open until the block ends, and tell `pods` and `clusters`; what existed before is told first."""
    watches = (
        _watch(api, _PODS, pods, {"labelSelector": LABEL_CLUSTER}),
        _watch(api, CLUSTERS_PATH, clusters, {}),
    )
    async with background(*watches):
        yield


@contextlib.asynccontextmanager
async def background(*coroutines: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """These run until the block ends.

    Raises:
        Exception: what one of them ended with: figures taken beside a watch that broke are none.
    """
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


async def _watch(api: Kubernetes, path: str, see: Callable[[Json], None], selector: dict[str, str]) -> None:
    # From version 0: what exists is told as ADDED, then what happens. A server may end a watch at any time.
    query = {"watch": "true", "resourceVersion": "0", "timeoutSeconds": "3600", **selector}
    while True:
        async with aclosing(api.stream(path, query=query)) as events:
            async for event in events:
                if event["type"] == "ERROR":
                    raise RuntimeError(f"the watch of {path} broke: {event['object'].get('message')}")
                see(event)
        await asyncio.sleep(_PAUSE_SECONDS)


class PodWatch:
    """All pods of one namespace, from a watch that is open before anything is asked for; by `time.monotonic`."""

    def __init__(self, api: Kubernetes, namespace: str) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._pods = SeenPods()
        self._news = asyncio.Condition()
        self.open = asyncio.Event()
        self.breaks = 0

    async def run(self) -> None:
        """Watch until cancelled; where the watch breaks, count that and list anew."""
        while True:
            try:
                await self._follow()
            except ApiError:
                self.breaks += 1
                await asyncio.sleep(_PAUSE_AFTER_ERROR_SECONDS)

    def workers(self, cluster: str) -> list[SeenPod]:
        """The worker pods of a cluster, those that are gone included."""
        return [pod for pod in self._pods.all() if pod.cluster == cluster and pod.is_worker]

    def left(self, cluster: str) -> list[SeenPod]:
        """All pods of a cluster that exist, terminating ones included."""
        return [pod for pod in self._pods.all() if pod.cluster == cluster and not pod.gone]

    async def until(self, check: Callable[[], Any]) -> Any:
        """Wait until `check` gives something true, and return that."""
        async with self._news:
            return await self._news.wait_for(check)

    async def _follow(self) -> None:
        listed = await self._api.request("GET", self._path)
        now = time.monotonic()
        for item in listed["items"]:
            self._pods.see({"type": "ADDED", "object": item}, now)
        self._pods.only([item["metadata"]["uid"] for item in listed["items"]], now)
        query = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"]}
        self.open.set()
        async for event in self._api.stream(self._path, query=query):
            now = time.monotonic()
            if event["type"] == "ERROR":
                raise ApiError(0, "Watch", str(event["object"].get("message", "")), self._path)
            async with self._news:
                self._pods.see(event, now)
                self._news.notify_all()


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str, *, seconds: float) -> None:
    """Wait until `condition()` holds.

    Raises:
        TimeoutError: not within `seconds`; the message says what was waited for.
    """
    deadline = time.monotonic() + seconds
    while True:
        holds = condition()
        if holds if isinstance(holds, bool) else await holds:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        await asyncio.sleep(_POLL_SECONDS)
