"""The command: each step from the request until what was asked for is there, who takes part, and what is printed."""

from __future__ import annotations

import asyncio
import operator
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from distributed import Client

from benchmarks.startup import report
from benchmarks.startup.participants import (
    FEW,
    MANY,
    Floor,
    GpudaskOperator,
    RunsClusters,
    dask_client,
    registered,
    service_address,
    single_use_session,
)
from benchmarks.startup.peer import Peer
from benchmarks.startup.run import Access, Benchmark, Figures, StepTookTooLongError, clear, shown
from benchmarks.testbed.pods import SeenPod
from benchmarks.testbed.watch import PodWatch
from gpudask.clients.kubernetes import Kubernetes

# A step that takes longer failed.
STEP_SECONDS = 90.0
# Between steps, so that none pays for what the one before it left to do.
_SETTLE_SECONDS = 2.0


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


def _floor(access: Access, namespace: str) -> RunsClusters:
    return Floor(access.api, namespace)


def _gpudask(access: Access, namespace: str) -> RunsClusters:
    return GpudaskOperator(access.api, namespace)


def _peer(access: Access, namespace: str) -> RunsClusters:
    return access.peer(Peer, namespace)


STARTUP: Benchmark[RunsClusters] = Benchmark(
    name="startup",
    about="How long clusters take to start, grow and shrink",
    makers={"floor": _floor, "gpudask": _gpudask, "peer": _peer},
    default=("floor", "gpudask", "peer"),
    trials=StartupTrial,
    rounds_option="--repeats",
    table=report.table,
    last_line=report.last_line,
)

if __name__ == "__main__":
    STARTUP.main()
