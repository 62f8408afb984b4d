"""What is looked at, the same for every contestant: pods through a watch, workers through the scheduler's own count."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from gpudask.api.resource import LABEL_DASK_CLUSTER, LABEL_DASK_COMPONENT, LABEL_POOL
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes

Json = dict[str, Any]

_POLL_SECONDS = 0.04
_AGAIN_SECONDS = 0.2
_ANSWER = aiohttp.ClientTimeout(total=5, connect=1)


@dataclass
class SeenPod:
    """When the watch told of a pod; `time.monotonic` seconds, 0.0 for what has not happened."""

    name: str
    cluster: str
    worker: bool
    gpu: bool
    created: float
    leaving: float = 0.0
    gone: float = 0.0


class PodWatch:
    """All pods of one namespace, from a watch that is open before anything is asked for."""

    def __init__(self, api: Kubernetes, namespace: str) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._pods: dict[str, SeenPod] = {}
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
                await asyncio.sleep(_AGAIN_SECONDS)

    def workers(self, cluster: str) -> list[SeenPod]:
        """The worker pods of a cluster, those that are gone included."""
        return [pod for pod in self._pods.values() if pod.cluster == cluster and pod.worker]

    def left(self, cluster: str) -> list[SeenPod]:
        """All pods of a cluster that exist, terminating ones included."""
        return [pod for pod in self._pods.values() if pod.cluster == cluster and not pod.gone]

    async def until(self, check: Callable[[], Any]) -> Any:
        """Wait until `check` gives something true, and return that."""
        async with self._news:
            return await self._news.wait_for(check)

    async def _follow(self) -> None:
        listed = await self._api.request("GET", self._path)
        now = time.monotonic()
        for item in listed["items"]:
            self._see(item, now)
        for uid in self._pods.keys() - {item["metadata"]["uid"] for item in listed["items"]}:
            self._pods[uid].gone = self._pods[uid].gone or now
        query = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"]}
        self.open.set()
        async for event in self._api.stream(self._path, query=query):
            now = time.monotonic()
            if event["type"] == "ERROR":
                raise ApiError(0, "Watch", str(event["object"].get("message", "")), self._path)
            async with self._news:
                pod = self._see(event["object"], now)
                if event["type"] == "DELETED":
                    pod.gone = now
                self._news.notify_all()

    def _see(self, body: Json, now: float) -> SeenPod:
        meta = body["metadata"]
        if meta["uid"] not in self._pods:
            self._pods[meta["uid"]] = SeenPod(
                name=meta["name"],
                cluster=meta["labels"].get(LABEL_DASK_CLUSTER, ""),
                worker=meta["labels"].get(LABEL_DASK_COMPONENT) == "worker",
                gpu=meta["labels"].get(LABEL_POOL) == "gpu",
                created=now,
            )
        pod = self._pods[meta["uid"]]
        if "deletionTimestamp" in meta:
            pod.leaving = pod.leaving or now
        return pod


def single_use_session() -> aiohttp.ClientSession:
    """A session that keeps no connection: one opened before kube-proxy knew a Service has gone elsewhere."""
    return aiohttp.ClientSession(trust_env=False, connector=aiohttp.TCPConnector(force_close=True))


async def service_address(api: Kubernetes, namespace: str, cluster: str) -> str:
    """The address of the scheduler's Service, once there is one; all contestants name it alike."""
    while True:
        try:
            service = await api.request("GET", f"/api/v1/namespaces/{namespace}/services/{cluster}-scheduler")
        except ApiError as error:
            if not error.not_found:
                raise
            await asyncio.sleep(_POLL_SECONDS)
        else:
            return str(service["spec"]["clusterIP"])


async def registered(session: aiohttp.ClientSession, address: str, workers: int) -> float:
    """Wait until the scheduler counts exactly so many workers; when that was seen, in `time.monotonic` seconds.

    Polled through the Service: a count is up to 0.04 s old. `session`: a `single_use_session`.
    """
    url = f"http://{address}:8787/json/counts.json"
    while True:
        try:
            async with session.get(url, timeout=_ANSWER, raise_for_status=True) as response:
                counts = await response.json()
                if counts["workers"] == workers:
                    return time.monotonic()
        except (aiohttp.ClientError, TimeoutError, ValueError):
            pass  # it does not listen yet
        await asyncio.sleep(_POLL_SECONDS)
