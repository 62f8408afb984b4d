"""The stock operator is swapped for ours while real schedulers and workers have tasks: docs/from-dask-kubernetes.md."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from distributed import Client, Future

from gpudask.api import Json
from tests.chart.conftest import Helm, helm
from tests.conftest import CRD
from tests.kubectl import Kubectl
from tests.mirror.stock import Stock
from tests.mirror.stock_operator import stock_operator
from tests.mirror.swap.node import ProcessNode
from tests.mirror.swap.stage import api_server, installed, staged
from tests.mirror.test_served import a_cluster, condition, make
from tests.reconcile.stage import Stage

__all__ = ["helm"]

pytestmark = [pytest.mark.api, pytest.mark.dask, pytest.mark.timeout(900)]

MIRROR = CRD.with_name("mirror.yaml")
SECONDS = 180.0  # what takes a few on a machine that does nothing else
WORKERS, TASKS, HELD = 2, 200, 30
GPUS = {"plain": {}, "more": {}, "accelerated": {"limits": {"nvidia.com/gpu": "1"}}}
# As a pod's own, these ports are free; here the schedulers share a machine.
POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
SCHEDULER = ["dask", "scheduler", "--host", "$(POD_IP)", "--dashboard-address", "$(POD_IP):8787"]
WORKER = "dask worker --no-nanny --nthreads 2"


def manifest(name: str) -> Json:
    """A DaskCluster as the stock client makes it, with commands that today's Dask has."""
    body = a_cluster(name, n_workers=WORKERS, resources=GPUS[name], env=[POD_IP], worker_command=WORKER)
    body["spec"]["scheduler"]["spec"]["containers"][0]["args"] = SCHEDULER
    body["spec"]["worker"]["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    return body


def task(release: Path) -> Callable[[int], int]:
    """What gives its number back after a while; the last ones not before the file `release` is there."""

    def work(number: int) -> int:
        time.sleep(0.1)
        while number >= TASKS - HELD and not release.exists():
            time.sleep(0.05)
        return number

    return work


@pytest.fixture
def kubectl() -> Iterator[Kubectl]:
    with api_server() as own:
        yield own


@contextlib.asynccontextmanager
async def running_stock_operator(stage: Stage, log: Path) -> AsyncIterator[None]:
    """The stock operator, until the block ends. It takes its time to end, in which clients go on."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(stock_operator(stage.kubeconfig, stage.namespace, log))
        yield
        await asyncio.to_thread(stack.close)


@contextlib.asynccontextmanager
async def connected(node: ProcessNode) -> AsyncIterator[list[Client]]:
    """A client of each cluster, until the block ends."""
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for name in GPUS:
            client = Client(node.address(name), asynchronous=True, set_as_default=False, timeout=SECONDS)
            clients.append(await stack.enter_async_context(client))
        yield clients


async def lost(futures: list[Future]) -> int:
    """How many of the tasks do not give the right result."""
    async with asyncio.timeout(SECONDS):
        results = await asyncio.gather(*futures, return_exceptions=True)
    return sum(result != number for number, result in enumerate(results))


async def uids(stage: Stage, plural: str, group: str = "") -> set[str]:
    return {item["metadata"]["uid"] for item in await stage.list(plural, group)}


async def all_tell(stage: Stage, stock: Stock, kind: str, words: str) -> None:
    """Wait until this condition of each cluster has this status and reason."""

    async def told() -> dict[str, str]:
        return {name: (await condition(stock, kind, name)).partition(":")[0] for name in GPUS}

    await stage.becomes(told, dict.fromkeys(GPUS, words), f"every DaskCluster tells {kind}: {words}", seconds=SECONDS)


async def start(stage: Stage, stock: Stock, node: ProcessNode) -> None:
    """Make the clusters, and wait until every scheduler and worker runs."""
    for name in GPUS:
        await make(stock, manifest(name))

    async def running() -> int:
        return len(node.pids())

    await stage.becomes(running, len(GPUS) * (1 + WORKERS), "every scheduler and worker runs", seconds=SECONDS)


async def test_no_task_is_lost_and_idle_clusters_are_replaced(kubectl: Kubectl, helm: Helm, tmp_path: Path) -> None:
    release = tmp_path / "release"
    async with staged(kubectl, tmp_path) as (stage, node), contextlib.AsyncExitStack() as later:
        stock = Stock(stage)
        async with running_stock_operator(stage, tmp_path / "stock.log"):
            await start(stage, stock, node)
            session = contextlib.AsyncExitStack()
            later.push_async_callback(session.aclose)
            clients = await session.enter_async_context(connected(node))
            for client in clients:
                await client.wait_for_workers(WORKERS, timeout=SECONDS)
            work = task(release)
            futures = [clients[n % len(clients)].submit(work, n, pure=False) for n in range(TASKS)]
        pods, made, processes = await uids(stage, "pods"), await uids(stage, "deployments", "apps/v1"), node.pids()
        await asyncio.to_thread(kubectl, "replace", "-f", str(MIRROR))
        await asyncio.to_thread(kubectl.await_served, "-f", str(MIRROR))
        await later.enter_async_context(installed(kubectl, helm, tmp_path))
        await all_tell(stage, stock, "TakenOver", "False WorkInProgress")

        async def done() -> int:
            return sum(future.done() for future in futures)

        await stage.becomes(done, TASKS - HELD, "the tasks that are not held are done meanwhile", seconds=SECONDS)
        assert node.pids() == processes, "every scheduler and worker is the same process"
        assert (await uids(stage, "pods"), await uids(stage, "deployments", "apps/v1")) == (pods, made)
        release.touch()
        missing = await lost(futures)
        print(f"swap: clusters={len(GPUS)} tasks={TASKS} lost={missing}")
        assert missing == 0
        assert node.died == []
        futures.clear()
        await all_tell(stage, stock, "TakenOver", "False ClientsConnected")
        assert await uids(stage, "deployments", "apps/v1") == made
        await session.aclose()
        await stage.becomes(
            lambda: uids(stage, "deployments", "apps/v1"), set(), "idle clusters are replaced", seconds=SECONDS
        )
        await all_tell(stage, stock, "Served", "True Served")
        assert node.pids() == {}, "the old processes have ended"
        for name in GPUS:
            await stage.shows("Ready", "True", name, seconds=SECONDS)
            await all_tell(stage, stock, "TakenOver", "none")
