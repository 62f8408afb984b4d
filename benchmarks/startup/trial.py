"""One contestant's turn: each step, from the request until what was asked for is there."""

from __future__ import annotations

import asyncio
import operator
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp
from distributed import Client

from benchmarks.startup.contestant import Contestant
from benchmarks.startup.sight import PodWatch, SeenPod, registered, service_address
from benchmarks.startup.workload import FEW, MANY
from gpudask.api.resource import LABEL_DASK_CLUSTER
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes

# A step that takes longer failed.
STEP_SECONDS = 90.0
# Between steps, so that none pays for what the one before it left to do.
_SETTLE_SECONDS = 2.0
_SWEEP_SECONDS = 3.0

Figures = dict[str, float]


class StepTookTooLongError(Exception):
    """A step was given up."""


class Trial:
    """The steps of one turn. `figures`: name -> seconds, filled as steps end: a failure keeps what went well."""

    def __init__(
        self, contestant: Contestant, api: Kubernetes, watch: PodWatch, session: aiohttp.ClientSession, number: int
    ) -> None:
        self._contestant = contestant
        self._api = api
        self._watch = watch
        self._session = session
        self._number = number
        self.figures: Figures = {}

    async def run(self) -> None:
        """A small cluster that grows, shrinks and gets a GPU task; then a large one.

        Raises:
            StepTookTooLongError: what was asked for did not come; the text shows the pods.
            ApiError: a request was refused.
        """
        async with self._cluster(f"small{self._number}", FEW, "ready_2") as (name, address), _client(address) as client:
            await self._grow(name, address, client)
            await self._shrink(name, address, client)
            if self._contestant.starts_gpu_workers:
                await self._gpu_task(name, address, client)
        async with self._cluster(f"large{self._number}", MANY, "ready_10"):
            pass

    @asynccontextmanager
    async def _cluster(self, name: str, workers: int, figure: str) -> AsyncIterator[tuple[str, str]]:
        """A cluster that is ready; gone afterwards, whatever happens."""
        try:
            begun = time.monotonic()
            async with asyncio.timeout(STEP_SECONDS):
                await self._contestant.start(name, workers)
                address = await service_address(self._api, self._contestant.namespace, name)
                self.figures[figure] = await registered(self._session, address, workers) - begun
            await asyncio.sleep(_SETTLE_SECONDS)
            yield name, address
        except TimeoutError as error:
            raise StepTookTooLongError(f"not within {STEP_SECONDS:.0f} s; {await self._shown(name)}") from error
        finally:
            with suppress(ApiError):
                await self._contestant.remove(name)
            async with asyncio.timeout(STEP_SECONDS):
                await self._sweep(name)

    async def _shown(self, name: str) -> str:
        """The cluster's pods, as far as they tell why it does not come."""
        path = f"/api/v1/namespaces/{self._contestant.namespace}/pods"
        listed = await self._api.request("GET", path, query={"labelSelector": f"{LABEL_DASK_CLUSTER}={name}"})
        pods = {item["metadata"]["name"]: item["status"] for item in listed["items"]}
        states = {
            pod: [container["state"] for container in status.get("containerStatuses", ())] or status["phase"]
            for pod, status in pods.items()
        }
        return f"pods: {states or 'none'}"

    async def _sweep(self, name: str) -> None:
        """End a cluster's pods without their grace, again and again: whoever made them may not have heard yet."""
        path = f"/api/v1/namespaces/{self._contestant.namespace}/pods"
        query = {"labelSelector": f"{LABEL_DASK_CLUSTER}={name}", "gracePeriodSeconds": "1"}
        while self._watch.left(name):
            await self._api.request("DELETE", path, query=query)
            with suppress(TimeoutError):
                async with asyncio.timeout(_SWEEP_SECONDS):
                    await self._watch.until(lambda: not self._watch.left(name))

    async def _grow(self, name: str, address: str, client: Client) -> None:
        begun = time.monotonic()
        async with asyncio.timeout(STEP_SECONDS):
            await self._contestant.scale(name, MANY, client)
            self.figures["up_8"] = await registered(self._session, address, MANY) - begun
        await asyncio.sleep(_SETTLE_SECONDS)

    async def _shrink(self, name: str, address: str, client: Client) -> None:
        begun = time.monotonic()
        async with asyncio.timeout(STEP_SECONDS):
            shown = asyncio.create_task(registered(self._session, address, FEW))
            await self._contestant.scale(name, FEW, client)
            ended = await self._watch.until(lambda: self._ended(name))
            self.figures["down_8_scheduler"] = await shown - begun
        self.figures["down_8_asked"] = min(pod.leaving for pod in ended) - begun
        self.figures["down_8_gone"] = max(pod.gone for pod in ended) - begun
        self.figures["termination_8"] = self.figures["down_8_gone"] - self.figures["down_8_asked"]
        await asyncio.sleep(_SETTLE_SECONDS)

    def _ended(self, name: str) -> list[SeenPod]:
        """The pods that are gone, once they are as many as were too much."""
        gone = [pod for pod in self._watch.workers(name) if pod.gone]
        return gone if len(gone) >= MANY - FEW else []

    async def _gpu_task(self, name: str, address: str, client: Client) -> None:
        """A task that only a GPU worker may run, where there is none. The clock starts before the client submits."""
        async with asyncio.timeout(STEP_SECONDS):
            begun = time.monotonic()
            future = client.submit(operator.add, 40, 2, resources={"GPU": 1}, pure=False)
            await self._contestant.gpu_task_submitted(name)
            joined = asyncio.create_task(registered(self._session, address, FEW + 1))
            pods = await self._watch.until(lambda: [pod for pod in self._watch.workers(name) if pod.gpu])
            self.figures["first_gpu_pod"] = pods[0].created - begun
            await future
            self.figures["first_gpu_result"] = time.monotonic() - begun
            self.figures["first_gpu_worker"] = await joined - begun


def _client(address: str) -> Client:
    return Client(f"tcp://{address}:8786", asynchronous=True, timeout=30)  # type: ignore[no-untyped-call]
