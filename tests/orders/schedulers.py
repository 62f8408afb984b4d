"""Dask schedulers in the pods that run, as the operator's client reaches them."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from typing import Any

from gpudask.api import Json
from gpudask.api.resource import ANNOTATION_DASK_NAME, LABEL_CLUSTER, LABEL_POOL
from gpudask.clients.errors import SchedulerError, SchedulerTrouble
from gpudask.clients.scheduler import SchedulerClient
from tests.orders.api_server import PODS, SlowApiServer, is_reached
from tests.reconcile.fake_dask import FakeScheduler
from tests.virtual_time import now

_POLL_SECONDS = 0.5


def submit(scheduler: FakeScheduler, tasks: int, gpu_tasks: int) -> None:
    """A program has so many tasks now, and so many that need a GPU each: where there are two, all workers are busy."""
    row = {"waiting": 0, "processing": 0, "since_seconds": 0.0, "seconds": 0.0}
    wanted: list[tuple[Json, int]] = [({}, tasks), ({"GPU": 1.0}, gpu_tasks)]
    scheduler.demand = [
        row | {"resources": each, "unrunnable": count, "unknown": count} for each, count in wanted if count
    ]
    scheduler.tasks = tasks + gpu_tasks
    scheduler.busy = set(scheduler.pods) if scheduler.tasks > 1 else set()


class Schedulers(SchedulerClient):
    """A client of the Dask schedulers in the pods that run, each with its cluster's workers.

    `processes`: the schedulers, by the uid of their pods and how often their container was started again; they outlive
    operators.
    """

    def __init__(
        self, server: SlowApiServer, processes: dict[str, FakeScheduler], may_write: Callable[[], bool]
    ) -> None:
        super().__init__(may_write)
        self._server = server
        self._processes = processes

    async def _request(self, method: str, url: str, *_: Any, **kwargs: Any) -> tuple[Any, int]:  # noqa: ARG002
        await asyncio.sleep(self._server.chance.uniform(0.001, 0.1))
        process, scheduler = self._find(url.removeprefix("http://").partition(":")[0])
        if url.endswith("/desired"):
            scheduler.desired = kwargs["json"]
            return {"protocol": 1, "desired_version": kwargs["json"]["version"], "refused": []}, 100
        if url.endswith("/history"):
            return {"protocol": 1, "scheduler_id": f"S-{process}", "erred": 0, "tasks": [], "errors": []}, 100
        ends_at = now() + float(kwargs["params"]["wait"])
        while True:
            answer = self._demand(process, scheduler)
            if answer["version"] != kwargs["params"]["seen"] or now() >= ends_at:
                return answer, 100
            await asyncio.sleep(_POLL_SECONDS)
            process, scheduler = self._find(scheduler.address)

    def _find(self, address: str) -> tuple[str, FakeScheduler]:
        """The scheduler at an address, and its process.

        Raises:
            SchedulerError: nobody answers there.
        """
        for path, body in self._server.objects.items():
            if path.startswith(PODS) and body.get("status", {}).get("podIP") == address and is_reached(body):
                process = f"{body['metadata']['uid']}-{body['status']['containerStatuses'][0]['restartCount']}"
                if process not in self._processes:
                    self._processes[process] = self._started(address)
                scheduler = self._processes[process]
                scheduler.pods = dict(self._workers(body["metadata"]["labels"][LABEL_CLUSTER]))
                return process, scheduler
        raise SchedulerError(SchedulerTrouble.UNREACHABLE, "the scheduler does not answer: no route to host")

    def _started(self, address: str) -> FakeScheduler:
        """A scheduler that has just started: often a program has tasks for it at once."""
        scheduler, chance = FakeScheduler(address), self._server.chance
        if chance.random() < 0.7:
            submit(scheduler, chance.randrange(3), chance.randrange(3))
        return scheduler

    def _workers(self, cluster: str) -> list[tuple[str, str]]:
        found = [body for path, body in self._server.objects.items() if path.startswith(PODS)]
        return [
            (body["metadata"]["annotations"][ANNOTATION_DASK_NAME], body["metadata"]["labels"][LABEL_POOL])
            for body in found
            if body["metadata"]["labels"].get(LABEL_CLUSTER) == cluster
            and body["metadata"]["labels"].get(LABEL_POOL)
            and is_reached(body)
        ]

    @staticmethod
    def _demand(process: str, scheduler: FakeScheduler) -> Json:
        content = {
            "desired_version": scheduler.desired.get("version", ""),
            "features": scheduler.features,
            "offers": scheduler.desired.get("offers", {}),
            "tasks": scheduler.tasks,
            "erred": 0,
            "idle_seconds": 0.0,
            "clients": scheduler.clients,
            "demand": scheduler.demand,
            "workers": [scheduler._worker(name, pool) for name, pool in sorted(scheduler.pods.items())],
        }
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:8]
        return {"protocol": 1, "version": f"{process}/{digest}", "scheduler_id": f"S-{process}"} | content
