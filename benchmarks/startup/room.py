"""A contestant's namespace: made and removed, and the pods of one cluster in it: shown, and swept away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from benchmarks.startup.contestant import Participant
from benchmarks.startup.sight import PodWatch
from gpudask.api.resource import LABEL_DASK_CLUSTER
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes

# Getting ready, and going, take no longer than this.
PATIENCE_SECONDS = 90.0
_POLL_SECONDS = 0.2
_SWEEP_SECONDS = 3.0


@asynccontextmanager
async def room(api: Kubernetes, participant: Participant) -> AsyncIterator[PodWatch]:
    """The participant's namespace, its pods watched; the namespace is gone afterwards."""
    name = participant.namespace
    watch = PodWatch(api, name)
    try:
        await api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": name}})
        watching = asyncio.create_task(watch.run())
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await watch.open.wait()
                await participant.prepare()
            yield watch
        finally:
            watching.cancel()
    finally:
        try:
            await participant.close()
        finally:
            await _remove_namespace(api, name)


async def shown(api: Kubernetes, namespace: str, cluster: str) -> str:
    """A cluster's pods, as far as they tell why it does not come."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    listed = await api.request("GET", path, query={"labelSelector": f"{LABEL_DASK_CLUSTER}={cluster}"})
    pods = {item["metadata"]["name"]: item["status"] for item in listed["items"]}
    states = {
        pod: [container["state"] for container in status.get("containerStatuses", ())] or status["phase"]
        for pod, status in pods.items()
    }
    return f"pods: {states or 'none'}"


async def clear(api: Kubernetes, participant: Participant, watch: PodWatch, cluster: str) -> None:
    """Remove a cluster, and end its pods without their grace, again and again: their maker may not have heard yet."""
    with suppress(ApiError):
        await participant.remove(cluster)
    path = f"/api/v1/namespaces/{participant.namespace}/pods"
    query = {"labelSelector": f"{LABEL_DASK_CLUSTER}={cluster}", "gracePeriodSeconds": "1"}
    async with asyncio.timeout(PATIENCE_SECONDS):
        while watch.left(cluster):
            await api.request("DELETE", path, query=query)
            with suppress(TimeoutError):
                async with asyncio.timeout(_SWEEP_SECONDS):
                    await watch.until(lambda: not watch.left(cluster))


async def _remove_namespace(api: Kubernetes, name: str) -> None:
    path = f"/api/v1/namespaces/{name}"
    async with asyncio.timeout(PATIENCE_SECONDS):
        try:
            await api.request("DELETE", path)
            while True:
                await api.request("GET", path)
                await asyncio.sleep(_POLL_SECONDS)
        except ApiError as error:
            if not error.not_found:
                raise
