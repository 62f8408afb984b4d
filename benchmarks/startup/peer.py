"""dask-kubernetes' operator: its own manifest, with our image, sizes and environment, and commands that still exist."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import yaml
from distributed import Client

from benchmarks.startup.peer_environment import PeerEnvironment
from benchmarks.startup.peer_process import PeerProcess
from benchmarks.startup.workload import FEW, Rendered, manifest
from gpudask.api.resource import LABEL_DASK_CLUSTER
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes

Json = dict[str, Any]

_GROUP = "/apis/kubernetes.dask.org/v1"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POLL_SECONDS, _POLLS = 0.1, 300
_MERGE = "application/merge-patch+json"
_ANY_CLUSTER = "any-cluster"


class Peer:
    """The peer's operator runs from `prepare` to `close`; definitions that it brought go with it."""

    title = "dask-kubernetes"
    # Its autoscaler asks the scheduler for a number of workers that knows nothing of resources.
    starts_gpu_workers = False

    def __init__(self, api: Kubernetes, namespace: str, environment: PeerEnvironment, process: PeerProcess) -> None:
        self._api = api
        self.namespace = namespace
        self._environment = environment
        self._process = process
        self._brought: list[str] = []
        self._template = ""

    async def prepare(self) -> None:
        """Install the definitions, start the operator."""
        for definition in self._definitions():
            await self._define(definition)
        self.ask_for_a_manifest()
        await self._process.start(await self._dns_address())

    async def start(self, cluster: str, workers: int) -> None:
        """POST a DaskCluster."""
        await self._api.create(self.dask_cluster(cluster, workers))

    async def scale(self, cluster: str, workers: int, client: Client) -> None:  # noqa: ARG002 - the operator has its own
        """PATCH the worker group, as its own client does."""
        path = f"{_GROUP}/namespaces/{self.namespace}/daskworkergroups/{cluster}-default"
        patch = {"spec": {"worker": {"replicas": workers}}}
        await self._api.request("PATCH", path, body=patch, content_type=_MERGE)

    async def gpu_task_submitted(self, cluster: str) -> None:
        """It cannot: see `starts_gpu_workers`."""
        raise NotImplementedError(cluster)

    async def served_by(self) -> str:
        """Its process, which nobody else knows of."""
        return ""

    async def remove(self, cluster: str) -> None:
        """DELETE the DaskCluster, and the Deployments that would last as long as its finalizer."""
        deployments = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        await self._api.request("DELETE", f"{_GROUP}/namespaces/{self.namespace}/daskclusters/{cluster}")
        await self._api.request("DELETE", deployments, query={"labelSelector": f"{LABEL_DASK_CLUSTER}={cluster}"})

    async def close(self) -> None:
        """Stop the operator; take its finalizers and its definitions away."""
        await self._process.stop()
        for definition in self._definitions():
            await self._release(definition["spec"]["names"]["plural"])
        for name in self._brought:
            await self._api.request("DELETE", f"{_CRDS}/{name}")
        for name in self._brought:
            await self._poll(name, lambda definition: definition is None, "is still there")

    def dask_cluster(self, cluster: str, workers: int) -> Json:
        """Its manifest of a cluster that runs what the other contestants run."""
        body: Json = json.loads(self._template.replace(_ANY_CLUSTER, cluster))
        body["spec"]["worker"]["replicas"] = workers
        return body

    def ask_for_a_manifest(self) -> None:
        """Have the peer make a manifest, whose name is then replaced: it takes a process, and no clock may run."""
        rendered = Rendered(manifest(_ANY_CLUSTER, self.namespace, FEW))
        scheduler = next(item for item in rendered.base() if item["kind"] == "Pod")["spec"]["containers"][0]
        worker = rendered.cpu_worker(0)["spec"]["containers"][0]
        limit = worker["args"][worker["args"].index("--memory-limit") + 1]
        body = self._environment.cluster_spec(
            name=_ANY_CLUSTER,
            image=worker["image"],
            n_workers=FEW,
            resources=worker["resources"],
            env=worker["env"],
            worker_command=f"dask worker --no-nanny --nthreads 1 --memory-limit {limit}",
        )
        theirs = body["spec"]["scheduler"]["spec"]["containers"][0]
        theirs |= {"args": ["dask", "scheduler", *theirs["args"][1:]], "resources": scheduler["resources"], "env": []}
        body["metadata"]["namespace"] = self.namespace
        self._template = json.dumps(body)

    async def _define(self, definition: Json) -> None:
        name = definition["metadata"]["name"]
        try:
            await self._api.request("POST", _CRDS, body=definition)
        except ApiError as error:
            if not error.conflict:
                raise
            return  # somebody else's: it stays
        self._brought.append(name)
        await self._poll(name, _established, "is not served")

    def _definitions(self) -> list[Json]:
        return [yaml.safe_load(path.read_text()) for path in self._environment.crds]

    async def _poll(self, name: str, check: Callable[[Json | None], bool], otherwise: str) -> None:
        """Look at a definition until `check` holds; it is given None where there is none.

        Raises:
            RuntimeError: it did not come to hold.
        """
        for _ in range(_POLLS):
            definition = None
            with suppress(ApiError):
                definition = await self._api.request("GET", f"{_CRDS}/{name}")
            if check(definition):
                return
            await asyncio.sleep(_POLL_SECONDS)
        raise RuntimeError(f"{name} {otherwise} after {_POLLS * _POLL_SECONDS:.0f} s")

    async def _release(self, plural: str) -> None:
        """Whatever an operator that stopped early left waiting for it."""
        path = f"{_GROUP}/namespaces/{self.namespace}/{plural}"
        with suppress(ApiError):  # what is not served, or gone by now, waits for nobody
            for item in (await self._api.request("GET", path))["items"]:
                item_path = f"{path}/{item['metadata']['name']}"
                await self._api.request("DELETE", item_path)
                patch = {"metadata": {"finalizers": None}}
                await self._api.request("PATCH", item_path, body=patch, content_type=_MERGE)

    async def _dns_address(self) -> str:
        service = await self._api.request("GET", "/api/v1/namespaces/kube-system/services/kube-dns")
        return str(service["spec"]["clusterIP"])


def _established(definition: Json | None) -> bool:
    conditions = (definition or {}).get("status", {}).get("conditions") or ()
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)
