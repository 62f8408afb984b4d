"""Who runs Dask clusters: what all can do, and two of them, the pods made by hand and the operator of gpudask."""

from __future__ import annotations

import asyncio
from typing import Protocol

from distributed import Client

from benchmarks.startup.workload import FEW, MANY, Rendered, dask_name, manifest
from gpudask.api.resource import API_VERSION, PLURAL
from gpudask.clients.kubernetes import Kubernetes
from local.operator_release import NAMESPACE


class Participant(Protocol):
    """Takes turns with others, in a namespace of its own."""

    title: str
    namespace: str

    async def prepare(self) -> None:
        """Become ready for requests; the namespace exists."""

    async def served_by(self) -> str:
        """What carries requests out. A turn in which this changed was disturbed from outside."""

    async def remove(self, cluster: str) -> None:
        """Ask for a cluster's end, so that nothing makes its pods anew; they themselves are swept away after it."""

    async def close(self) -> None:
        """Leave nothing behind that it brought; the namespace goes after it."""


class RunsClusters(Participant, Protocol):
    """Runs Dask clusters. Its methods return when the request is made, not when it is met."""

    starts_gpu_workers: bool

    async def start(self, cluster: str, workers: int) -> None:
        """Ask for a cluster with so many CPU workers."""

    async def scale(self, cluster: str, workers: int, client: Client) -> None:
        """Ask for another number of CPU workers; `client` is connected to the cluster."""

    async def gpu_task_submitted(self, cluster: str) -> None:
        """A GPU task is on its way to a scheduler that has no GPU worker."""


class Floor:
    """The floor: the operator's own pods, applied by hand at once, by somebody who needs no time to think.

    Raw requests to the API server, as many at once as there are objects.
    """

    title = "floor"
    starts_gpu_workers = True

    def __init__(self, api: Kubernetes, namespace: str) -> None:
        self._api = api
        self.namespace = namespace

    async def prepare(self) -> None:
        """Nothing has to run."""

    async def start(self, cluster: str, workers: int) -> None:
        """POST everything, concurrently."""
        rendered = self._rendered(cluster)
        objects = rendered.base() + [rendered.cpu_worker(number) for number in range(workers)]
        await asyncio.gather(*(self._api.create(item) for item in objects))

    async def scale(self, cluster: str, workers: int, client: Client) -> None:
        """POST what is missing; or have the scheduler retire what is too much, and DELETE its pods."""
        rendered = self._rendered(cluster)
        changing = [rendered.cpu_worker(number) for number in range(FEW, MANY)]
        if workers == MANY:
            await asyncio.gather(*(self._api.create(pod) for pod in changing))
            return
        # The scheduler does not close them. When it did, pods took 31 s to go, not 3 (one turn, not explained).
        leaving = [dask_name(pod) for pod in changing]
        await client.retire_workers(names=leaving, close_workers=False, remove=False)
        await asyncio.gather(*(self._delete("pods", pod["metadata"]["name"]) for pod in changing))

    async def gpu_task_submitted(self, cluster: str) -> None:
        """POST the GPU worker."""
        await self._api.create(self._rendered(cluster).gpu_worker())

    async def served_by(self) -> str:
        """Nothing."""
        return ""

    async def remove(self, cluster: str) -> None:
        """DELETE what is beside the pods."""
        base = self._rendered(cluster).base()
        kinds = {"Service": "services", "ConfigMap": "configmaps"}
        await asyncio.gather(
            *(self._delete(kinds[b["kind"]], b["metadata"]["name"]) for b in base if b["kind"] in kinds)
        )

    async def close(self) -> None:
        """Nothing ran."""

    def _rendered(self, cluster: str) -> Rendered:
        return Rendered(manifest(cluster, self.namespace, FEW))

    async def _delete(self, plural: str, name: str) -> None:
        await self._api.request("DELETE", f"/api/v1/namespaces/{self.namespace}/{plural}/{name}")


class GpudaskOperator:
    """gpudask's operator, as its chart installs it beforehand: one resource a cluster, sizes by patches of it."""

    title = "gpudask"
    starts_gpu_workers = True

    def __init__(self, api: Kubernetes, namespace: str) -> None:
        self._api = api
        self.namespace = namespace

    async def prepare(self) -> None:
        """The chart was installed before any measurement."""

    async def start(self, cluster: str, workers: int) -> None:
        """POST the resource."""
        await self._api.create(manifest(cluster, self.namespace, workers))

    async def scale(self, cluster: str, workers: int, client: Client) -> None:  # noqa: ARG002 - the operator has its own
        """PATCH the pool's size."""
        patch = [{"op": "replace", "path": "/spec/pools/0/replicas", "value": workers}]
        await self._api.request("PATCH", self._path(cluster), body=patch, content_type="application/json-patch+json")

    async def gpu_task_submitted(self, cluster: str) -> None:
        """Nothing: it is the operator that has to see it."""

    async def served_by(self) -> str:
        """The operator's pods, and how often each was restarted."""
        query = {"labelSelector": "app.kubernetes.io/name=gpudask"}
        pods = (await self._api.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods", query=query))["items"]
        restarts = {
            pod["metadata"]["uid"]: [item["restartCount"] for item in pod["status"].get("containerStatuses", ())]
            for pod in pods
        }
        return str(sorted(restarts.items()))

    async def remove(self, cluster: str) -> None:
        """DELETE the resource; Kubernetes collects the rest."""
        await self._api.request("DELETE", self._path(cluster))

    async def close(self) -> None:
        """The operator stays: it is not this benchmark's."""

    def _path(self, cluster: str) -> str:
        return f"/apis/{API_VERSION}/namespaces/{self.namespace}/{PLURAL}/{cluster}"
