"""A node that runs the pods of Deployments as processes of this machine, each on a loopback address of its own.

It does what the swap of the operators needs of a kubelet, a DNS and a proxy: `$(NAME)` in arguments, `status.podIP` in
the environment, a scheduler that is ready once its dashboard's port answers, the Service's name as its address, SIGTERM
and the time after it. Pods of GpuDaskClusters are played, as on any stage.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from gpudask.api import Json
from gpudask.api.addresses import DASHBOARD_PORT
from gpudask.api.resource import LABEL_CLUSTER, LABEL_DASK_CLUSTER, LABEL_DASK_COMPONENT
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from tests.reconcile.fake_dask import free_address
from tests.reconcile.fake_kubelet import FakeKubelet, running

_GRACE_SECONDS = 20.0
_POLL_SECONDS = 0.1
_LOG_SHOWN = 2_000  # characters of each
_VARIABLE = re.compile(r"\$\((\w+)\)")
# Nothing of ours steers Dask's processes, nor the tests' own settings of Dask.
_LEFT_OUT = ("DASK_", "GPUDASK_", "KUBE", "PYTEST_")


class ProcessNode(FakeKubelet):
    """`died`: pods whose process ended though nobody deleted them. `directory`: of their logs and files."""

    def __init__(self, api: Kubernetes, namespace: str, directory: Path) -> None:
        super().__init__(api, namespace)
        self._namespace = namespace
        self._directory = directory
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._addresses: defaultdict[str, asyncio.Future[str]] = defaultdict(asyncio.Future)
        self.died: list[str] = []

    def address(self, cluster: str) -> str:
        """The scheduler's address, once its pod is ready."""
        return f"tcp://{self._addresses[cluster].result()}:8786"

    def pids(self) -> dict[str, int]:
        """The process of each pod that runs, by the pod's uid."""
        return {uid: process.pid for uid, process in self._processes.items() if process.returncode is None}

    def logs(self) -> str:
        """The last lines of each process."""
        texts = {path.name: path.read_text(errors="replace") for path in sorted(self._directory.glob("*.log"))}
        return "\n".join(f"--- {name}\n{text[-_LOG_SHOWN:]}" for name, text in texts.items())

    async def stop(self) -> None:
        """End, and all processes."""
        await super().stop()
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await asyncio.gather(*(process.wait() for process in self._processes.values()))

    def _see(self, body: Json) -> None:
        meta = body["metadata"]
        labels = meta.get("labels", {})
        if LABEL_CLUSTER in labels or LABEL_DASK_CLUSTER not in labels:
            super()._see(body)
            return
        uid = meta["uid"]
        self._known[uid] = body
        if "deletionTimestamp" in meta:
            if uid not in self._ended:
                self._ended.add(uid)
                self._do(self._terminate(body))
        elif uid not in self._started:
            self._started.add(uid)
            self._do(self._run_container(body))

    async def _run_container(self, body: Json) -> None:
        meta = body["metadata"]
        cluster = meta["labels"][LABEL_DASK_CLUSTER]
        is_scheduler = meta["labels"][LABEL_DASK_COMPONENT] == "scheduler"
        own = free_address()
        scheduler = own if is_scheduler else await asyncio.shield(self._addresses[cluster])
        try:
            await self._bind(meta["name"])
            process = await self._start(body, own, scheduler)
            if is_scheduler and not await _listens(own, process):
                return
            status = running(own)
            status["containerStatuses"][0]["name"] = body["spec"]["containers"][0]["name"]
            await self._status(meta["name"], status)
        except ApiError:
            return  # it was deleted meanwhile, and is ended by that
        if is_scheduler:
            self._addresses[cluster].set_result(own)

    async def _bind(self, pod: str) -> None:
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}}
        binding["target"] = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
        await self._api.request("POST", f"{self._path}/{pod}/binding", body=binding)

    async def _start(self, body: Json, own: str, scheduler: str) -> asyncio.subprocess.Process:
        meta, container = body["metadata"], body["spec"]["containers"][0]
        service = f"{meta['labels'][LABEL_DASK_CLUSTER]}-scheduler.{self._namespace}.svc.cluster.local"
        told = {item["name"]: _value(item, own).replace(service, scheduler) for item in container.get("env", ())}
        command = [expanded(word, told) for word in (*container.get("command", ()), *container.get("args", ()))]
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(_LEFT_OUT)}
        home = self._directory / meta["name"]
        home.mkdir()
        environment = {
            **inherited,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "DASK_TEMPORARY_DIRECTORY": str(home),
            **told,
        }
        with home.with_suffix(".log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(*command, cwd=home, env=environment, stdout=log, stderr=log)
        self._processes[meta["uid"]] = process
        self._do(self._watch(meta["uid"], meta["name"], process))
        return process

    async def _watch(self, uid: str, name: str, process: asyncio.subprocess.Process) -> None:
        status = await process.wait()
        if uid not in self._ended:
            self.died.append(f"{name}: status {status}")

    async def _terminate(self, body: Json) -> None:
        process = self._processes.get(body["metadata"]["uid"])
        if process is not None and process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(_GRACE_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        await self._end(body)


def expanded(word: str, variables: Mapping[str, str]) -> str:
    """`word` with each `$(NAME)` as Kubernetes has it: one that is unknown stays."""
    return _VARIABLE.sub(lambda found: variables.get(found[1], found[0]), word)


def _value(item: Json, own: str) -> str:
    source = item.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
    return own if source == "status.podIP" else str(item.get("value", ""))


async def _listens(address: str, process: asyncio.subprocess.Process) -> bool:
    """Wait until the dashboard's port answers; False: the process ended before."""
    while process.returncode is None:
        try:
            _, writer = await asyncio.open_connection(address, DASHBOARD_PORT)
        except OSError:
            await asyncio.sleep(_POLL_SECONDS)
            continue
        writer.close()
        return True
    return False
