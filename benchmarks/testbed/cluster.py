"""A simulated cluster: an API server of its own, nodes that kwok simulates, fake Dask schedulers, and watches.

A pod that names one of the nodes is Running at once, and gone at once when it is deleted.
https://kwok.sigs.k8s.io/docs/user/stages-configuration/
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.testbed.bare_client import BareClient
from benchmarks.testbed.manifests import ADDRESS, NAMESPACE, NODES, Json, cluster, creations, node_name
from benchmarks.testbed.schedulers import FakeSchedulers, addresses
from benchmarks.testbed.watch import ClusterPods, ReadyClusters, until, watching
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from local.clusters.api_server import ApiServer
from local.host.progress import Steps
from local.layout import REPOSITORY
from local.programs.binaries import KWOK, ensure_binary

_CRD = REPOSITORY / "crds" / "gpudaskclusters.yaml"
# kwok watches from version 0, which is a streamed list to a new API server; an older etcd than 3.5 cannot make one.
_NO_STREAMED_LISTS = "WatchList=false"
_DEADLINE_SECONDS = 400
_CRDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PARALLEL = 16  # pods started or ended at the same time; with kwok's 4 it would set the pace
_ANNOTATION = "kwok.x-k8s.io/node"
# One write for each pod: assigned, started and ready are told together.
_RUNNING = """
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
hostIP: 127.0.0.1
podIP: {{ or (index .metadata.annotations "ADDRESS") "127.0.0.1" | Quote }}
conditions:
- {type: PodScheduled, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
- name: dask
  image: fake
  imageID: fake
  ready: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
"""


@dataclass(frozen=True)
class SimulatedCluster:
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
            lambda: all(scheduler.polls for scheduler in self.schedulers.by_address.values()),
            f"the operator listens to {len(bodies)} schedulers",
            seconds=_DEADLINE_SECONDS,
        )

    async def until_ready(self, pods: int) -> None:
        """Wait until so many pods are ready."""
        await until(lambda: len(self.pods.ready_at) >= pods, f"{pods} pods are ready", seconds=_DEADLINE_SECONDS)


@contextlib.asynccontextmanager
async def simulated_cluster(schedulers: int, *, audit: bool = False) -> AsyncIterator[SimulatedCluster]:
    """A fresh one with so many fake schedulers; all of it ends with the block. `audit`: requests are logged."""
    server = ApiServer.start(f"scale-{os.getpid()}", audit=audit, feature_gates=_NO_STREAMED_LISTS)
    try:
        async with contextlib.AsyncExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpudask-scale-")))
            api = await Kubernetes.connect(str(server.kubeconfig))
            stack.push_async_callback(api.close)
            await _install_crd(api)
            fakes = FakeSchedulers(addresses(schedulers))
            stack.push_async_callback(fakes.stop)
            await fakes.start()
            await stack.enter_async_context(_fake_nodes(api, server.kubeconfig, scratch))
            pods, clusters = ClusterPods(fakes), ReadyClusters()
            await stack.enter_async_context(watching(api, pods.see, clusters.see))
            yield SimulatedCluster(server, api, fakes, pods, clusters, scratch)
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


@contextlib.asynccontextmanager
async def _fake_nodes(api: Kubernetes, kubeconfig: Path, scratch: Path) -> AsyncIterator[None]:
    """Fake nodes until the block ends; kwok's log and settings lie in `scratch`."""
    binary = ensure_binary(KWOK, Steps())
    for number in range(NODES):
        metadata = {"name": node_name(number), "annotations": {_ANNOTATION: "fake"}}
        await api.request("POST", "/api/v1/nodes", body={"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    settings = scratch / "kwok.yaml"
    settings.write_text(yaml.safe_dump_all(_settings()))
    with (scratch / "kwok.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            str(binary),
            f"--kubeconfig={kubeconfig}",
            f"--config={settings}",
            f"--manage-nodes-with-annotation-selector={_ANNOTATION}=fake",
            stdout=log,
            stderr=log,
        )
    try:
        await _warmed_up(api)
        yield
    finally:
        process.kill()
        await process.wait()


async def _warmed_up(api: Kubernetes) -> None:
    """Wait until a first pod runs: kwok's watches take a second to begin."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    metadata = {"name": "warm-up", "namespace": NAMESPACE, "annotations": {ADDRESS: "127.0.0.1"}}
    spec = {"nodeName": node_name(0), "containers": [{"name": "dask", "image": "fake"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    await api.request("POST", path, body=body)

    async def runs() -> bool:
        pod = await api.request("GET", f"{path}/warm-up")
        return bool(pod["status"].get("phase") == "Running")

    await until(runs, "kwok runs a pod; its log says why not", seconds=30)
    await api.request("DELETE", f"{path}/warm-up", body={"gracePeriodSeconds": 0})


def _settings() -> list[Json]:
    options = {"podPlayStageParallelism": _PARALLEL}
    absent = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
    return [
        {"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration", "options": options},
        _stage("pod-runs", "Pod", [absent, {"key": ".status.podIP", "operator": "DoesNotExist"}], _runs()),
        _stage("pod-ends", "Pod", [{**absent, "operator": "Exists"}], {"delete": True}),
        _stage(
            "node-is-ready",
            "Node",
            [{"key": ".status.phase", "operator": "DoesNotExist"}],
            {"statusTemplate": "phase: Running"},
        ),
    ]


def _runs() -> Json:
    return {"statusTemplate": _RUNNING.replace("ADDRESS", ADDRESS)}


def _stage(name: str, kind: str, expressions: list[Json], following: Json) -> Json:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": expressions},
            "next": following,
        },
    }
