"""What a person does with jobs on a stage."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gpudask.api import Json
from gpudask.api.resource import API_VERSION, JOB_PLURAL
from gpudask.clients.errors import ApiError
from tests.api.test_job import a_job
from tests.builders import a_manifest, a_pool
from tests.reconcile.stage import Stage, eventually

OWN = {"cluster": {"spec": a_manifest(a_pool(replicas=1))["spec"]}}
LONG = 120.0  # seconds; CI's machines are busy


class Jobs:
    """What a person does with jobs on a stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._path = f"/apis/{API_VERSION}/namespaces/{stage.namespace}/{JOB_PLURAL}"

    async def apply(self, name: str = "sums", **spec: Any) -> None:
        body = a_job(**(OWN | {"backoff": "100ms"} | spec)) | {"metadata": {"name": name}}
        query = {"fieldManager": "test", "force": "true"}
        kind = "application/apply-patch+yaml"
        await self._stage.api.request("PATCH", f"{self._path}/{name}", query=query, body=body, content_type=kind)

    async def get(self, name: str = "sums") -> Json | None:
        try:
            return await self._stage.api.request("GET", f"{self._path}/{name}")
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def patch(self, name: str = "sums", **spec: Any) -> None:
        kind = "application/merge-patch+json"
        await self._stage.api.request("PATCH", f"{self._path}/{name}", body={"spec": spec}, content_type=kind)

    async def delete(self, name: str = "sums") -> None:
        await self._stage.api.request("DELETE", f"{self._path}/{name}")

    async def status(self, name: str = "sums") -> Json:
        return ((await self.get(name)) or {}).get("status", {})

    async def said(self, name: str = "sums") -> str:
        """Phase and reason."""
        status = await self.status(name)
        return f"{status.get('phase')} {status.get('reason')}"

    async def becomes(self, said: str, name: str = "sums") -> Json:
        await eventually(lambda: self.said(name), lambda found: found.startswith(said), said, seconds=LONG)
        return await self.status(name)

    async def clusters(self) -> list[str]:
        """The clusters that are there."""
        found = await self._stage.list("gpudaskclusters", API_VERSION)
        return [item["metadata"]["name"] for item in found]

    async def hold_cluster(self, finalizers: list[str], name: str = "sums") -> None:
        """Let the deletion of a cluster wait for these."""
        path = f"/apis/{API_VERSION}/namespaces/{self._stage.namespace}/gpudaskclusters/{name}"
        body, kind = {"metadata": {"finalizers": finalizers}}, "application/merge-patch+json"
        await self._stage.api.request("PATCH", path, body=body, content_type=kind)

    async def left(self) -> list[str]:
        """What an ended job should not have left: its cluster, and pods of it that are not being deleted."""
        return [*await self.clusters(), *await self._stage.names("sums")]

    def twice(self) -> dict[str, int]:
        """Attempts whose program ran more than once."""
        runs = Counter(name for name, _ in self._stage.kubelet.runs)
        return {name: count for name, count in runs.items() if count > 1}
