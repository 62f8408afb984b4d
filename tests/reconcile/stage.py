"""The stage of the tests on a real API server: a namespace, a fake node, and what a person does with kubectl."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Self

import kopf
import pytest

from gpudask.api.resource import API_VERSION, LABEL_CLUSTER, LABEL_POOL
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from gpudask.handlers import register
from gpudask.reconcile.operator import Operator
from gpudask.settings import Settings
from local.clusters.api_server import ApiServer
from local.host.ports import free_ports
from tests.builders import a_manifest
from tests.eventually import eventually_async as eventually
from tests.eventually import steadily_async as stays  # noqa: F401 (the tests' on this stage)
from tests.kubectl import Kubectl
from tests.reconcile.fake_dask import FakeScheduler
from tests.reconcile.fake_kubelet import FakeKubelet

_LOG_SHOWN = 10_000  # characters
_STARTED_SECONDS = 90  # by then it has started, or ended, also on a busy machine


class StandingClock:
    """A clock that stands still, but for the seconds that a test adds, however long the test itself takes."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


class Stage:
    """One namespace. Its methods do what a person would, and say what is there."""

    def __init__(self, api: Kubernetes, namespace: str, kubeconfig: Path) -> None:
        self.api = api
        self.namespace = namespace
        self.kubeconfig = kubeconfig
        self.kubelet = FakeKubelet(api, namespace)
        self._core = f"/api/v1/namespaces/{namespace}"
        self._clusters = f"/apis/{API_VERSION}/namespaces/{namespace}/gpudaskclusters"

    @property
    def settings(self) -> Settings:
        """Settings of an operator for this namespace alone; the next with them is the same pod, started again."""
        return Settings(
            namespace=self.namespace,
            watch_namespaces=(self.namespace,),
            kubeconfig=str(self.kubeconfig),
            health_port=0,
            identity="operator",
        )

    # what people do

    async def apply(self, *pools: Json, name: str = "demo", **spec: Any) -> Json:
        """`kubectl apply --server-side`."""
        body = a_manifest(*pools, name=name, **spec)
        query = {"fieldManager": "test", "force": "true"}
        kind = "application/apply-patch+yaml"
        return await self.api.request("PATCH", f"{self._clusters}/{name}", query=query, body=body, content_type=kind)

    async def delete_cluster(self, name: str = "demo") -> None:
        """`kubectl delete gdc`."""
        await self.api.request("DELETE", f"{self._clusters}/{name}")

    async def create(self, plural: str, body: Json) -> Json:
        """`kubectl create`."""
        return await self.api.request("POST", f"{self._core}/{plural}", body=body)

    async def delete(self, plural: str, name: str, **options: Any) -> None:
        """`kubectl delete`."""
        await self.api.request("DELETE", f"{self._core}/{plural}/{name}", body=options or None)

    async def patch(self, plural: str, name: str, body: Json) -> None:
        """`kubectl patch`."""
        kind = "application/merge-patch+json"
        await self.api.request("PATCH", f"{self._core}/{plural}/{name}", body=body, content_type=kind)

    # what is there

    async def cluster(self, name: str = "demo") -> Json:
        return await self.api.request("GET", f"{self._clusters}/{name}")

    async def status(self, name: str = "demo") -> Json:
        return dict((await self.cluster(name)).get("status", {}))

    async def workers(self) -> list[int]:
        """How many workers each pool has, by the status; empty before the first one is written."""
        return [pool.get("workers", 0) for pool in (await self.status()).get("pools", ())]

    async def condition(self, kind: str, name: str = "demo") -> str:
        """A condition as `True AllReady: message`, of the spec as it is now."""
        body = await self.cluster(name)
        status = body.get("status", {})
        item = next((item for item in status.get("conditions", ()) if item["type"] == kind), {})
        stale = "(older spec) " if status.get("observedGeneration") != body["metadata"]["generation"] else ""
        return f"{stale}{item.get('status')} {item.get('reason')}: {item.get('message', '')}"

    async def get(self, plural: str, name: str) -> Json | None:
        try:
            return await self.api.request("GET", f"{self._core}/{plural}/{name}")
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def list(self, plural: str, group: str = "") -> list[Json]:
        core = f"/apis/{group}/namespaces/{self.namespace}" if group else self._core
        return list((await self.api.request("GET", f"{core}/{plural}"))["items"])

    async def pods(self, name: str = "demo", pool: str | None = None) -> list[Json]:
        """The worker pods of a cluster that are not being deleted."""
        labels = [(pod, pod["metadata"].get("labels", {})) for pod in await self.list("pods")]
        return [
            pod
            for pod, label in labels
            if label.get(LABEL_CLUSTER) == name
            and LABEL_POOL in label
            and (pool is None or label[LABEL_POOL] == pool)
            and "deletionTimestamp" not in pod["metadata"]
        ]

    async def names(self, name: str = "demo", pool: str | None = None) -> list[str]:
        return [pod["metadata"]["name"] for pod in await self.pods(name, pool)]

    async def scheduler(self, name: str = "demo") -> FakeScheduler:
        """The running scheduler of a cluster, once the operator listens to it."""

        async def look() -> FakeScheduler | None:
            found = self.kubelet.schedulers.get(name)
            return found if found and found.polls else None

        found = await eventually(look, bool, f"the operator listens to the scheduler of {name}")
        assert found is not None
        return found

    async def becomes(self, look: Callable[[], Awaitable[Any]], wanted: Any, what: str = "", **wait: float) -> None:
        """Wait until `look()` is `wanted`."""
        await eventually(look, lambda found: found == wanted, what or f"{wanted!r}", **wait)

    async def shows(self, kind: str, words: str, name: str = "demo", **wait: float) -> str:
        """Wait until a condition holds these words."""
        return str(
            await eventually(
                lambda: self.condition(kind, name),
                lambda c: words in c and "(older" not in c,
                f"{kind}: {words}",
                **wait,
            )
        )


@contextlib.contextmanager
def defined(name: str, definition: Path) -> Iterator[Kubectl]:
    """kubectl on an API server of the tests' own, which knows this definition alone."""
    server = ApiServer.start(f"tests-{name}-{os.getpid()}")
    try:
        kubectl = Kubectl(str(server.kubectl), server.kubeconfig)
        kubectl.define(definition)
        yield kubectl
    finally:
        server.stop()


@contextlib.asynccontextmanager
async def staged_alone(own: Kubectl, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    """The stage of that server, which an operator of this process finds as well."""
    assert own.kubeconfig is not None
    monkeypatch.setenv("KUBECONFIG", str(own.kubeconfig))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    async with staged(own.kubeconfig, "default") as stage:
        yield stage


@contextlib.asynccontextmanager
async def staged(kubeconfig: Path, namespace: str) -> AsyncIterator[Stage]:
    """An administrator's view of a namespace, and a fake node in it."""
    api = await Kubernetes.connect(str(kubeconfig))
    stage = Stage(api, namespace, kubeconfig)
    stage.kubelet.start()
    try:
        yield stage
    finally:
        await stage.kubelet.stop()
        await api.close()


@contextlib.asynccontextmanager
async def operating(
    settings: Settings, election_clock: Callable[[], float] | None = None, **timing: float
) -> AsyncIterator[Operator]:
    """The operator in this process, with kopf around it, until the block ends.

    It has a thread and a loop of its own: kopf cancels every task of its loop when it ends. By `election_clock`
    a Lease that nobody renews runs out; by default none does, however long this machine does nothing for the operator.
    """
    operator = Operator(settings, **timing)
    operator.election_clock = election_clock or StandingClock()
    stop = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        await kopf.operator(
            registry=register(operator),
            standalone=True,
            clusterwide=not settings.watch_namespaces,
            namespaces=settings.watch_namespaces,
            stop_flag=stop,
        )

    running = asyncio.create_task(asyncio.to_thread(asyncio.run, run()))
    try:
        deadline = time.monotonic() + _STARTED_SECONDS
        while not operator.synced:
            if running.done():
                await running
            assert time.monotonic() < deadline, f"the operator's caches did not fill in {_STARTED_SECONDS} s"
            await asyncio.sleep(0.02)
        yield operator
    finally:
        stop.set()
        await asyncio.wait([running], timeout=_STARTED_SECONDS)
        assert running.done(), (
            f"{_STARTED_SECONDS} s after it was told to end the operator goes on: {asyncio.all_tasks(loops[0])}"
        )
        await running


class OperatorProcess:
    """The operator as a process of its own, that can be killed, and is at the end of its block.

    What fails within the block is shown with the end of its log. `code`: where its package is, if it is another one.
    """

    def __init__(self, settings: Settings, log: Path, *, code: Path | None = None) -> None:
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("GPUDASK_")},
            "KUBECONFIG": settings.kubeconfig,
            "GPUDASK_NAMESPACE": settings.namespace,
            "GPUDASK_WATCH_NAMESPACES": ",".join(settings.watch_namespaces),
            "GPUDASK_IDENTITY": settings.identity,
            "GPUDASK_HEALTH_PORT": str(free_ports(1, host="")[0]),
            **({"PYTHONPATH": str(code)} if code is not None else {}),
        }
        self._log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen([sys.executable, "-m", "gpudask"], env=environment, stdout=out, stderr=out)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.kill()
        if error is not None:
            error.add_note(f"The end of the operator's log:\n{self._log.read_text(errors='replace')[-_LOG_SHOWN:]}")

    def kill(self) -> None:
        """End it at once, in the middle of whatever it does."""
        self._process.kill()
        self._process.wait()
