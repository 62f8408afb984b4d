"""dask-kubernetes' operator: its Python environment, made once from a lock; its process; and what it is asked for.

Its own manifest is taken, with our image, sizes and environment, and commands that still exist.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from distributed import Client

from benchmarks.startup.participants import FEW, Rendered, manifest
from gpudask.api.resource import LABEL_DASK_CLUSTER
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from local.host.ports import free_ports
from local.layout import cache_dir

Json = dict[str, Any]

_LOCK = Path(__file__).with_name("peer.lock")
_CRD_FILES = "dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds"
# Run there, not here: what a user of that package gets.
_SPEC = """
import json, sys
from dask_kubernetes.operator import make_cluster_spec
json.dump(make_cluster_spec(**json.load(sys.stdin)), sys.stdout)
"""
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
# A mount namespace of its own, for its resolv.conf: a name that is unknown costs the peer 19 pauses of 0.5 s each time.
_RUN = 'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"'
_GROUP = "/apis/kubernetes.dask.org/v1"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POLL_SECONDS, _POLLS = 0.1, 300
_MERGE = "application/merge-patch+json"
_ANY_CLUSTER = "any-cluster"


@dataclass(frozen=True)
class PeerEnvironment:
    """A virtual environment with the peer in it."""

    root: Path

    @classmethod
    def ensure(cls) -> PeerEnvironment:
        """Make it where it is missing; its directory carries the lock's hash.

        Raises:
            subprocess.CalledProcessError: a package could not be installed; its output is on the terminal.
        """
        digest = hashlib.sha256(_LOCK.read_bytes()).hexdigest()[:12]
        environment = cls(cache_dir() / "peer" / digest)
        complete = environment.root / ".compiled"
        if not complete.exists():
            print(f"installing dask-kubernetes' operator into {environment.root}", flush=True)
            uv = Path(sys.executable).with_name("uv")
            subprocess.run([uv, "venv", "--quiet", "--clear", environment.root], check=True)
            sync: list[str | Path] = [
                uv,
                "pip",
                "sync",
                "--quiet",
                "--compile-bytecode",  # as pip does for a user; else each process compiles what it imports anew
                "--python",
                environment.python,
                "--require-hashes",
                _LOCK,
            ]
            subprocess.run(sync, check=True)
            complete.touch()
        return environment

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.root / "bin" / "python"

    @property
    def kopf(self) -> Path:
        """The command that runs the peer's controller."""
        return self.root / "bin" / "kopf"

    @property
    def crds(self) -> list[Path]:
        """The files of its custom resource definitions, as its Helm chart installs them."""
        return sorted(self.root.glob(f"lib/python*/site-packages/{_CRD_FILES}/*.yaml"))

    def cluster_spec(self, **arguments: Any) -> dict[str, Any]:
        """What its `make_cluster_spec` makes of `arguments`: a DaskCluster."""
        done = subprocess.run(
            [self.python, "-c", _SPEC], input=json.dumps(arguments), capture_output=True, text=True, check=True
        )
        return dict(json.loads(done.stdout))


def version() -> str:
    """The peer's version, from the lock."""
    lines = (line.split()[0] for line in _LOCK.read_text().splitlines() if line.startswith("dask-kubernetes=="))
    return next(lines).partition("==")[2]


class PeerProcess:
    """`kopf run` of the peer's controller, for one namespace. It is ended by its process id."""

    def __init__(self, environment: PeerEnvironment, kubeconfig: Path, namespace: str, directory: Path) -> None:
        self._environment = environment
        self.kubeconfig = kubeconfig
        self._namespace = namespace
        self._directory = directory
        self.log = cache_dir() / "logs" / "benchmark-peer.log"
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, dns_address: str) -> None:
        """Start it, and wait until its liveness endpoint answers.

        Raises:
            RuntimeError: it ended, or does not answer; the text has the log's path.
        """
        resolv = self._directory / f"{self._namespace}.resolv.conf"
        resolv.write_text(
            f"nameserver {dns_address}\n"
            f"search {self._namespace}.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"
        )
        url = f"http://127.0.0.1:{free_ports(1)[0]}/healthz"
        controller = [str(self._environment.kopf), "run", "--standalone", "--namespace", self._namespace]
        controller += ["--liveness", url, "-m", "dask_kubernetes.operator.controller"]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - it is to run beside us, and starts at once
                ["unshare", "--mount", "--propagation", "private", "sh", "-c", _RUN, "sh", str(resolv), *controller],
                env=os.environ | {"KUBECONFIG": str(self.kubeconfig)},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the benchmark, which still needs it to clean up
            )
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._answers(url)
        except TimeoutError as error:
            raise RuntimeError(f"the peer's operator does not answer: {self.log}") from error

    async def stop(self) -> None:
        """End it, and wait until it has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(process.wait, _STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)

    async def _answers(self, url: str) -> None:
        assert self._process is not None, "asked only after the start"
        async with aiohttp.ClientSession(trust_env=False) as session:
            while self._process.poll() is None:
                with suppress(aiohttp.ClientError):
                    async with session.get(url) as response:
                        if response.ok:
                            return
                await asyncio.sleep(_POLL_SECONDS)
        raise RuntimeError(f"the peer's operator ended with {self._process.returncode}: {self.log}")


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
        """Its manifest of a cluster that runs what the others run."""
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
