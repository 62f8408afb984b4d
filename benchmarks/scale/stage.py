"""What each measurement stands on: an API server of its own, played nodes and schedulers, and watches."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.scale.client_process import BareClient
from benchmarks.scale.kwok import playing_nodes
from benchmarks.scale.manifests import CLUSTERS_PATH, cluster
from benchmarks.scale.operator_process import OperatorProcess, operating
from benchmarks.scale.schedulers import Schedulers, addresses
from benchmarks.scale.waiting import until
from benchmarks.scale.watching import Clusters, Pods, watching
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from local.api_server import ApiServer
from local.layout import REPOSITORY

_CRD = REPOSITORY / "crds" / "gpudaskclusters.yaml"
# kwok watches from version 0, which is a streamed list to a new API server; an older etcd than 3.5 cannot make one.
_NO_STREAMED_LISTS = "WatchList=false"
_CRDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True)
class Stage:
    """A stage on which nothing has happened yet. `scratch`: a directory for files."""

    server: ApiServer
    api: Kubernetes
    schedulers: Schedulers
    pods: Pods
    clusters: Clusters
    scratch: Path

    @property
    def addresses(self) -> list[str]:
        """The addresses of the played schedulers."""
        return list(self.schedulers.by_address)

    async def prepared(self, lines: Iterable[str]) -> BareClient:
        """A bare client with these requests, not sent yet."""
        return await BareClient.prepare(self.server.kubeconfig, self.scratch, lines)

    @contextlib.asynccontextmanager
    async def operating(self) -> AsyncIterator[OperatorProcess]:
        """The operator, until the block ends. It is up: it acts on clusters that are new."""
        async with operating(self.server.kubeconfig, self.scratch) as operator:
            await _warmed_up(self.api)
            yield operator


@contextlib.asynccontextmanager
async def staged(schedulers: int, *, audit: bool = False) -> AsyncIterator[Stage]:
    """A fresh stage with so many played schedulers; all of it ends with the block. `audit`: requests are logged."""
    server = ApiServer.start(f"scale-{os.getpid()}", audit=audit, feature_gates=_NO_STREAMED_LISTS)
    try:
        async with contextlib.AsyncExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpudask-scale-")))
            api = await Kubernetes.connect(str(server.kubeconfig))
            stack.push_async_callback(api.close)
            await _install_crd(api)
            played = Schedulers(addresses(schedulers))
            stack.push_async_callback(played.stop)
            await played.start()
            await stack.enter_async_context(playing_nodes(api, server.kubeconfig, scratch))
            pods, clusters = Pods(played), Clusters()
            await stack.enter_async_context(watching(api, pods.see, clusters.see))
            yield Stage(server, api, played, pods, clusters, scratch)
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


async def _warmed_up(api: Kubernetes) -> None:
    """Wait until the operator has seen a first cluster: kopf's watch begins some time after our caches are full."""
    body = cluster(0, "", cpu_pods=0, gpu_pods_max=1)
    body["metadata"]["name"], body["spec"]["suspend"] = "warm-up", True
    await api.request("POST", CLUSTERS_PATH, body=body)

    async def seen() -> bool:
        found = await api.request("GET", f"{CLUSTERS_PATH}/warm-up")
        return bool(found.get("status", {}).get("phase") == "Suspended")

    await until(seen, "the operator reports a first cluster", seconds=60)
    await api.request("DELETE", f"{CLUSTERS_PATH}/warm-up")
