"""Participants: what they all run, what all can do, and two of them: pods made by hand, and the operator of gpudask.

All run a scheduler, small CPU workers, and one GPU worker that only a GPU task needs. At the end: how a scheduler is
found and asked, which is the same for all of them.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
from distributed import Client

from gpudask.api import resource
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from gpudask.desired import names, preload
from gpudask.desired.scheduler import preload_settings, scheduler_pod, services
from gpudask.desired.workers import worker_pod
from gpudask.preload import files
from local.demo.overlay import localize
from local.operator.release import NAMESPACE

Json = dict[str, Any]

FEW, MANY = 2, 10
_WORKER = {"cpu": "50m", "memory": "384Mi"}
# Ten small workers fit on one node; the GPU pool's size changes once, upwards.
_STAYS = "1h"
_TOKEN = "benchmark"  # noqa: S105 - nothing worth guarding: the floor's cluster lives for seconds
_POLL_SECONDS = 0.04
_ANSWER = aiohttp.ClientTimeout(total=5, connect=1)


def manifest(name: str, namespace: str, workers: int) -> Json:
    """A GpuDaskCluster of so many CPU worker pods, and a GPU pool that begins empty."""
    body = localize(
        {
            "apiVersion": resource.API_VERSION,
            "kind": resource.KIND,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "image": "replaced",
                "pools": [
                    {"name": "cpu", "nthreads": 1, "replicas": workers},
                    {"name": "gpu", "gpu": {"count": 1}, "autoscale": {"min": 0, "max": 1}},
                ],
            },
        }
    )
    cpu, gpu = body["spec"]["pools"]
    cpu["resources"] = dict(_WORKER)
    gpu["autoscale"]["idleTimeout"] = _STAYS
    return body


class Rendered:
    """The objects that the operator would make from a manifest, without an owner: nothing collects them."""

    def __init__(self, body: Json) -> None:
        identity = {"uid": f"by-hand-{body['metadata']['name']}", "generation": 1}
        self._cluster = resource.parse(body | {"metadata": body["metadata"] | identity})
        self._files = files()

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self._cluster.name

    def base(self) -> list[Json]:
        """Service, ConfigMaps, and the scheduler pod."""
        cluster = self._cluster
        pod_name = names.scheduler_pod(cluster.name, cluster.uid, frozenset())
        objects = [
            *services(cluster),
            preload.preload(cluster.namespace, self._files, [cluster.shared_reference]),
            preload_settings(cluster, _TOKEN),
            scheduler_pod(cluster, pod_name, preload.name(self._files)),
        ]
        return [_unowned(item) for item in objects]

    def cpu_worker(self, number: int) -> Json:
        """CPU worker pod `number`."""
        return self._worker("cpu", number)

    def gpu_worker(self) -> Json:
        """The GPU worker pod."""
        return self._worker("gpu", 0)

    def _worker(self, pool_name: str, number: int) -> Json:
        pool = next(pool for pool in self._cluster.spec.pools if pool.name == pool_name)
        return _unowned(worker_pod(self._cluster, pool, number, "hand0"))


def dask_name(pod: Json) -> str:
    """The name under which the worker of a rendered pod registers."""
    return str(pod["metadata"]["annotations"][resource.ANNOTATION_DASK_NAME])


def _unowned(body: Json) -> Json:
    metadata = {key: value for key, value in body["metadata"].items() if key != "ownerReferences"}
    return body | {"metadata": metadata}


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


@dataclass
class Floor:
    """The floor: the operator's own pods, applied by hand at once, by somebody who needs no time to think.

    Raw requests to the API server, as many at once as there are objects.
    """

    api: Kubernetes
    namespace: str
    title = "floor"
    starts_gpu_workers = True

    async def prepare(self) -> None:
        """Nothing has to run."""

    async def start(self, cluster: str, workers: int) -> None:
        """POST everything, concurrently."""
        rendered = self._rendered(cluster)
        objects = rendered.base() + [rendered.cpu_worker(number) for number in range(workers)]
        await asyncio.gather(*(self.api.create(item) for item in objects))

    async def scale(self, cluster: str, workers: int, client: Client) -> None:
        """POST what is missing; or have the scheduler retire what is too much, and DELETE its pods."""
        rendered = self._rendered(cluster)
        changing = [rendered.cpu_worker(number) for number in range(FEW, MANY)]
        if workers == MANY:
            await asyncio.gather(*(self.api.create(pod) for pod in changing))
            return
        # The scheduler does not close them. When it did, pods took 31 s to go, not 3 (one turn, not explained).
        leaving = [dask_name(pod) for pod in changing]
        await client.retire_workers(names=leaving, close_workers=False, remove=False)
        await asyncio.gather(*(self._delete("pods", pod["metadata"]["name"]) for pod in changing))

    async def gpu_task_submitted(self, cluster: str) -> None:
        """POST the GPU worker."""
        await self.api.create(self._rendered(cluster).gpu_worker())

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
        await self.api.request("DELETE", f"/api/v1/namespaces/{self.namespace}/{plural}/{name}")


@dataclass
class GpudaskOperator:
    """gpudask's operator, as its chart installs it beforehand: one resource a cluster, sizes by patches of it."""

    api: Kubernetes
    namespace: str
    title = "gpudask"
    starts_gpu_workers = True

    async def prepare(self) -> None:
        """The chart was installed before any measurement."""

    async def start(self, cluster: str, workers: int) -> None:
        """POST the resource."""
        await self.api.create(manifest(cluster, self.namespace, workers))

    async def scale(self, cluster: str, workers: int, client: Client) -> None:  # noqa: ARG002 - the operator has its own
        """PATCH the pool's size."""
        patch = [{"op": "replace", "path": "/spec/pools/0/replicas", "value": workers}]
        await self.api.request("PATCH", self._path(cluster), body=patch, content_type="application/json-patch+json")

    async def gpu_task_submitted(self, cluster: str) -> None:
        """Nothing: it is the operator that has to see it."""

    async def served_by(self) -> str:
        """The operator's pods, and how often each was restarted."""
        query = {"labelSelector": "app.kubernetes.io/name=gpudask"}
        pods = (await self.api.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods", query=query))["items"]
        restarts = {
            pod["metadata"]["uid"]: [item["restartCount"] for item in pod["status"].get("containerStatuses", ())]
            for pod in pods
        }
        return str(sorted(restarts.items()))

    async def remove(self, cluster: str) -> None:
        """DELETE the resource; Kubernetes collects the rest."""
        await self.api.request("DELETE", self._path(cluster))

    async def close(self) -> None:
        """The operator stays: it is not this benchmark's."""

    def _path(self, cluster: str) -> str:
        return f"/apis/{resource.API_VERSION}/namespaces/{self.namespace}/{resource.PLURAL}/{cluster}"


def dask_client(address: str) -> Client:
    """An asynchronous client of the scheduler at this address."""
    return Client(f"tcp://{address}:8786", asynchronous=True, timeout=30)  # type: ignore[no-untyped-call]


def single_use_session() -> aiohttp.ClientSession:
    """A session that keeps no connection: one opened before kube-proxy knew a Service has gone elsewhere."""
    return aiohttp.ClientSession(trust_env=False, connector=aiohttp.TCPConnector(force_close=True))


async def service_address(api: Kubernetes, namespace: str, cluster: str) -> str:
    """The address of the scheduler's Service, once there is one; all participants name it alike."""
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
