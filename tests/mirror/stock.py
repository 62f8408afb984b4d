"""The stock Dask client as its users run it, in a thread of its own; only the way to the scheduler is played."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from dask_kubernetes.operator import KubeCluster
from tests.reconcile.stage import Stage


class Stock:
    """The mirror of one namespace: `call` runs the client, `get` reads an object of the mirror."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._path = f"/apis/kubernetes.dask.org/v1/namespaces/{stage.namespace}"

    async def call(self, use: Callable[[KubeCluster], Any], name: str = "demo", **options: Any) -> Any:
        """`use` an instance from `from_name`, and close it."""

        def run() -> Any:
            with KubeCluster.from_name(name, namespace=self.stage.namespace, quiet=True, **options) as cluster:
                return use(cluster)

        return await asyncio.wait_for(in_daemon(run), 60)

    async def get(self, kind: str, name: str) -> Json | None:
        """An object; None where there is none."""
        return next((item for item in await self.list(kind) if item["metadata"]["name"] == name), None)

    async def list(self, kind: str) -> list[Json]:
        return list((await self.stage.api.request("GET", f"{self._path}/{kind}s"))["items"])

    async def names(self, kind: str) -> list[str]:
        return [item["metadata"]["name"] for item in await self.list(kind)]

    async def size(self, group: str) -> int | None:
        """What a worker group says of its size."""
        found = await self.get("daskworkergroup", group)
        return found["spec"]["worker"].get("replicas") if found else -1

    async def limit(self, least: int, most: int) -> None:
        """Make a DaskAutoscaler for the cluster `demo`, as `adapt` does."""
        spec = {"cluster": "demo", "minimum": least, "maximum": most}
        body = {
            "apiVersion": "kubernetes.dask.org/v1",
            "kind": "DaskAutoscaler",
            "metadata": {"name": "demo"},
            "spec": spec,
        }
        await self.stage.api.request("POST", f"{self._path}/daskautoscalers", body=body)

    async def delete(self, kind: str, name: str) -> None:
        await self.stage.api.request("DELETE", f"{self._path}/{kind}s/{name}")

    async def patch(self, kind: str, name: str, body: Json) -> Json:
        return await self.stage.api.request(
            "PATCH", f"{self._path}/{kind}s/{name}", body=body, content_type="application/merge-patch+json"
        )


def in_daemon(run: Callable[[], Any]) -> asyncio.Future[Any]:
    """What `run` returns, from a thread that holds nobody up where it hangs."""
    done: Future[Any] = Future()

    def work() -> None:
        try:
            done.set_result(run())
        except BaseException as error:  # noqa: BLE001 - handed on
            done.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return asyncio.wrap_future(done)
