"""A simulated cluster: an API server of its own, fake nodes and Dask schedulers, and watches."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.testbed.bare_client import BareClient
from benchmarks.testbed.kwok import fake_nodes
from benchmarks.testbed.manifests import Json, cluster, creations
from benchmarks.testbed.schedulers import FakeSchedulers, addresses
from benchmarks.testbed.watch import ClusterPods, ReadyClusters, until, watching
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from local.api_server import ApiServer
from local.layout import REPOSITORY

_CRD = REPOSITORY / "crds" / "gpudaskclusters.yaml"
# kwok watches from version 0, which is a streamed list to a new API server; an older etcd than 3.5 cannot make one.
_NO_STREAMED_LISTS = "WatchList=false"
_DEADLINE_SECONDS = 400
_CRDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True)
class Testbed:
    """A simulated cluster on which nothing has happened yet. `scratch`: a directory for files."""

    server: ApiServer
    api: Kubernetes
    schedulers: FakeSchedulers
    pods: ClusterPods
    clusters: ReadyClusters
    scratch: Path

    @property
    def addresses(self) -> list[str]:
        """The addresses of the fake schedulers."""
        return list(self.schedulers.by_address)

    async def prepared(self, lines: Iterable[str]) -> BareClient:
        """A bare client with these requests, not sent yet."""
        return await BareClient.prepare(self.server.kubeconfig, self.scratch, lines)

    def manifests(self, cpu_pods: int, gpu_pods_max: int) -> list[Json]:
        """One cluster for each fake scheduler."""
        return [
            cluster(number, address, cpu_pods=cpu_pods, gpu_pods_max=gpu_pods_max)
            for number, address in enumerate(self.addresses)
        ]

    async def add_clusters(self, gpu_pods_max: int, cpu_pods: int = 0) -> None:
        """Make one cluster for each fake scheduler, and wait until the operator listens to all."""
        bodies = self.manifests(cpu_pods, gpu_pods_max)
        client = await self.prepared(creations(bodies))
        await client.send()
        await self.until_ready(len(bodies) * (1 + cpu_pods))
        await until(
            lambda: all(played.polls for played in self.schedulers.by_address.values()),
            f"the operator listens to {len(bodies)} schedulers",
            seconds=_DEADLINE_SECONDS,
        )

    async def until_ready(self, pods: int) -> None:
        """Wait until so many pods are ready."""
        await until(lambda: len(self.pods.ready_at) >= pods, f"{pods} pods are ready", seconds=_DEADLINE_SECONDS)


@contextlib.asynccontextmanager
async def new_testbed(schedulers: int, *, audit: bool = False) -> AsyncIterator[Testbed]:
    """A fresh one with so many fake schedulers; all of it ends with the block. `audit`: requests are logged."""
    server = ApiServer.start(f"scale-{os.getpid()}", audit=audit, feature_gates=_NO_STREAMED_LISTS)
    try:
        async with contextlib.AsyncExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpudask-scale-")))
            api = await Kubernetes.connect(str(server.kubeconfig))
            stack.push_async_callback(api.close)
            await _install_crd(api)
            played = FakeSchedulers(addresses(schedulers))
            stack.push_async_callback(played.stop)
            await played.start()
            await stack.enter_async_context(fake_nodes(api, server.kubeconfig, scratch))
            pods, clusters = ClusterPods(played), ReadyClusters()
            await stack.enter_async_context(watching(api, pods.see, clusters.see))
            yield Testbed(server, api, played, pods, clusters, scratch)
    finally:
        server.stop()


async def _install_crd(api: Kubernetes) -> None:
    body = yaml.safe_load(_CRD.read_text())
    await api.request("POST", _CRDS_PATH, body=body)
    version = body["spec"]["versions"][0]["name"]
    path = f"/apis/{body['spec']['group']}/{version}/{body['spec']['names']['plural']}"

    async def served() -> bool:
        try:
            await api.request("GET", path, query={"limit": "1"})
        except ApiError as error:
            if error.not_found:
                return False
            raise
        return True

    await until(served, "the API server knows GpuDaskCluster", seconds=30)
