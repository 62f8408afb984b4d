"""gpudask's operator, as its chart installs it."""

from __future__ import annotations

from distributed import Client

from benchmarks.startup.workload import manifest
from gpudask.api.resource import API_VERSION, PLURAL
from gpudask.clients.kubernetes import Kubernetes
from local.operator_release import NAMESPACE


class GpudaskOperator:
    """One resource a cluster; sizes by patches of it. The operator is installed beforehand (`platform`)."""

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
