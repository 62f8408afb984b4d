"""The floor: the operator's own pods, applied by hand at once, by somebody who needs no time to think."""

from __future__ import annotations

import asyncio

from distributed import Client

from benchmarks.startup.workload import FEW, MANY, Rendered, dask_name, manifest
from gpudask.clients.kubernetes import Kubernetes


class Floor:
    """Raw requests to the API server, as many at once as there are objects."""

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
