"""One participant's turn: each step, from the request until what was asked for is there."""

from __future__ import annotations

import asyncio
import operator
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from distributed import Client

from benchmarks.startup.participants import FEW, MANY, RunsClusters
from benchmarks.startup.run import Figures, StepTookTooLongError, clear, shown
from benchmarks.testbed.pods import SeenPod
from benchmarks.testbed.watch import PodWatch
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes

# A step that takes longer failed.
STEP_SECONDS = 90.0
# Between steps, so that none pays for what the one before it left to do.
_SETTLE_SECONDS = 2.0
_POLL_SECONDS = 0.04
_ANSWER = aiohttp.ClientTimeout(total=5, connect=1)


class StartupTrial:
    """A small cluster that grows, shrinks and gets a GPU task; then a large one."""

    def __init__(self, participant: RunsClusters, api: Kubernetes, watch: PodWatch, number: int) -> None:
        self._participant = participant
        self._api = api
        self._watch = watch
        self._number = number
        self.figures: Figures = {}

    async def run(self) -> None:
        """All steps; `run.Trial` says what is raised."""
        async with single_use_session() as session:
            await self._small(session)
            async with self._cluster(session, f"large{self._number}", MANY, "ready_10"):
                pass

    async def _small(self, session: aiohttp.ClientSession) -> None:
        async with (
            self._cluster(session, f"small{self._number}", FEW, "ready_2") as (name, address),
            dask_client(address) as client,
        ):
            await self._grow(session, name, address, client)
            await self._shrink(session, name, address, client)
            if self._participant.starts_gpu_workers:
                await self._gpu_task(session, name, address, client)

    @asynccontextmanager
    async def _cluster(
        self, session: aiohttp.ClientSession, name: str, workers: int, figure: str
    ) -> AsyncIterator[tuple[str, str]]:
        """A cluster that is ready; gone afterwards, whatever happens."""
        try:
            begun = time.monotonic()
            async with asyncio.timeout(STEP_SECONDS):
                await self._participant.start(name, workers)
                address = await service_address(self._api, self._participant.namespace, name)
                self.figures[figure] = await registered(session, address, workers) - begun
            await asyncio.sleep(_SETTLE_SECONDS)
            yield name, address
        except TimeoutError as error:
            seen = await shown(self._api, self._participant.namespace, name)
            raise StepTookTooLongError(f"not within {STEP_SECONDS:.0f} s; {seen}") from error
        finally:
            await clear(self._api, self._participant, self._watch, name)

    async def _grow(self, session: aiohttp.ClientSession, name: str, address: str, client: Client) -> None:
        begun = time.monotonic()
        async with asyncio.timeout(STEP_SECONDS):
            await self._participant.scale(name, MANY, client)
            self.figures["up_8"] = await registered(session, address, MANY) - begun
        await asyncio.sleep(_SETTLE_SECONDS)

    async def _shrink(self, session: aiohttp.ClientSession, name: str, address: str, client: Client) -> None:
        begun = time.monotonic()
        async with asyncio.timeout(STEP_SECONDS):
            seen = asyncio.create_task(registered(session, address, FEW))
            await self._participant.scale(name, FEW, client)
            ended = await self._watch.until(lambda: self._ended(name))
            self.figures["down_8_scheduler"] = await seen - begun
        self.figures["down_8_asked"] = min(pod.leaving for pod in ended) - begun
        self.figures["down_8_gone"] = max(pod.gone for pod in ended) - begun
        self.figures["termination_8"] = self.figures["down_8_gone"] - self.figures["down_8_asked"]
        await asyncio.sleep(_SETTLE_SECONDS)

    def _ended(self, name: str) -> list[SeenPod]:
        """The pods that are gone, once they are as many as were too much."""
        gone = [pod for pod in self._watch.workers(name) if pod.gone]
        return gone if len(gone) >= MANY - FEW else []

    async def _gpu_task(self, session: aiohttp.ClientSession, name: str, address: str, client: Client) -> None:
        """A task that only a GPU worker may run, where there is none. The clock starts before the client submits."""
        async with asyncio.timeout(STEP_SECONDS):
            begun = time.monotonic()
            future = client.submit(operator.add, 40, 2, resources={"GPU": 1}, pure=False)
            await self._participant.gpu_task_submitted(name)
            joined = asyncio.create_task(registered(session, address, FEW + 1))
            pods = await self._watch.until(lambda: [pod for pod in self._watch.workers(name) if pod.pool == "gpu"])
            self.figures["first_gpu_pod"] = pods[0].created - begun
            await future
            self.figures["first_gpu_result"] = time.monotonic() - begun
            self.figures["first_gpu_worker"] = await joined - begun


def dask_client(address: str) -> Client:
    """An asynchronous client of the scheduler at this address."""
    return Client(f"tcp://{address}:8786", asynchronous=True, timeout=30)  # type: ignore[no-untyped-call]


def single_use_session() -> aiohttp.ClientSession:
    """A session that keeps no connection: one opened before kube-proxy knew a Service has gone elsewhere."""
    return aiohttp.ClientSession(trust_env=False, connector=aiohttp.TCPConnector(force_close=True))


async def service_address(api: Kubernetes, namespace: str, cluster: str) -> str:
    """The address of the scheduler's Service, once there is one; all participants name it alike."""
    while True:
        try:
            service = await api.request("GET", f"/api/v1/namespaces/{namespace}/services/{cluster}-scheduler")
        except ApiError as error:
            if not error.not_found:
                raise
            await asyncio.sleep(_POLL_SECONDS)
        else:
            return str(service["spec"]["clusterIP"])


async def registered(session: aiohttp.ClientSession, address: str, workers: int) -> float:
    """Wait until the scheduler counts exactly so many workers; when that was seen, in `time.monotonic` seconds.

    Polled through the Service: a count is up to 0.04 s old. `session`: a `single_use_session`.
    """
    url = f"http://{address}:8787/json/counts.json"
    while True:
        try:
            async with session.get(url, timeout=_ANSWER, raise_for_status=True) as response:
                counts = await response.json()
                if counts["workers"] == workers:
                    return time.monotonic()
        except (aiohttp.ClientError, TimeoutError, ValueError):
            pass  # it does not listen yet
        await asyncio.sleep(_POLL_SECONDS)
