"""The node: it runs the jobs' programs as they are planned, refuses pods, and ends those past a pod's deadline."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from gpudask.api import Json
from gpudask.api.resource import LABEL_CLUSTER, LABEL_JOB
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from tests.chaos_jobs.jobs import FOR_EVER, SHARED, PlannedJob
from tests.reconcile.fake_kubelet import FakeKubelet, exited, running

_REFUSAL = {
    "phase": "Failed",
    "reason": "OutOfcpu",
    "message": "Pod was rejected: Node didn't have enough resource: cpu",
}


class Node(FakeKubelet):
    """`jobs`: by name."""

    def __init__(self, api: Kubernetes, namespace: str, jobs: Mapping[str, PlannedJob], seed: int) -> None:
        super().__init__(api, namespace)
        self._jobs = jobs
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._runs: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._stopped: set[str] = set()

    def _see_runner(self, body: Json) -> None:
        name, uid = body["metadata"]["name"], body["metadata"]["uid"]
        if uid not in self._started and not body["spec"].get("schedulingGates"):
            self._started.add(uid)
            self._do(self._program(body))
        elif body["spec"].get("activeDeadlineSeconds") == 1 and uid not in self._stopped:
            self._stopped.add(uid)
            self._do(self._quietly(name, {"phase": "Failed", "reason": "DeadlineExceeded"}))

    async def _program(self, body: Json) -> None:
        name, job = body["metadata"]["name"], self._jobs[body["metadata"]["labels"][LABEL_JOB]]
        with suppress(ApiError):  # it is gone
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
            binding["target"] = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
            await self._api.request("POST", f"{self._path}/{name}/binding", body=binding)
            if self._refused[job.name] < job.refused:
                self._refused[job.name] += 1
                await self._status(name, _REFUSAL)
                return
            code = job.exits[min(self._runs[job.name], len(job.exits) - 1)]
            self._runs[job.name] += 1
            status = running("127.0.0.2")
            status["containerStatuses"][0]["name"] = body["spec"]["containers"][0]["name"]
            await self._status(name, status)
            if code == FOR_EVER:
                return
            await asyncio.sleep(self._random.random())
            ended = exited({"metadata": body["metadata"], "status": status}, code)
            if job.beside:
                ended["phase"] = "Running"
            await self._status(name, ended)

    async def _quietly(self, name: str, status: Json) -> None:
        with suppress(ApiError):
            await self._status(name, status)

    def _gone(self, uid: str) -> None:
        labels = self._known.get(uid, {}).get("metadata", {}).get("labels", {})
        cluster = labels.get(LABEL_CLUSTER, "")
        is_scheduler = labels.get("dask.org/component") == "scheduler"
        super()._gone(uid)
        if is_scheduler and cluster != SHARED and (scheduler := self.schedulers.pop(cluster, None)) is not None:
            self._do(scheduler.stop())
