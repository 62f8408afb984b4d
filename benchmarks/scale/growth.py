"""How long the operator takes to make many objects, beside a bare client that makes the same ones.

(a) many clusters of a few pods, until all report ready; (b) the GPU pools of many clusters from 0 to many, at once.
Each side has a stage of its own. Seconds are counted from the first request until the last event is heard.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic

from benchmarks.scale import manifests
from benchmarks.scale.client_process import creations
from benchmarks.scale.operator_process import OperatorProcess, Work
from benchmarks.scale.stage import Stage, staged
from benchmarks.scale.waiting import until

CPU_PODS = 3
"""With the scheduler, (a) has 4 pods a cluster."""
_DEADLINE_SECONDS = 400
LONG_TASK_SECONDS = 3600.0  # so long that every GPU task asks for a pod of its own


@dataclass(frozen=True)
class Grown:
    """What one side took, in seconds. `done`: what is asked for holds: pods ready, and clusters that say so."""

    pods: int
    created_seconds: float
    ready_seconds: float
    done_seconds: float
    work: Work | None = None

    @property
    def pods_a_second(self) -> float:
        """How quickly pods came to be, all of them."""
        return self.pods / self.created_seconds


async def clusters_floor(count: int) -> Grown:
    """(a) by the bare client: the clusters, and all that the operator would make of them."""
    async with staged(count) as stage:
        bodies = _clusters(stage, CPU_PODS, gpu_pods_max=10)
        parts = [*manifests.shared_by(bodies), *(p for body in bodies for p in (body, *manifests.made_of(body)))]
        return await _by_hand(stage, [*creations(parts)], pods=count * (1 + CPU_PODS))


@asynccontextmanager
async def clusters_operator(count: int) -> AsyncIterator[tuple[Stage, OperatorProcess, Grown]]:
    """(a) by the operator; the clusters go on until the block ends."""
    async with staged(count) as stage, stage.operating() as operator:
        client = await stage.prepared(creations(_clusters(stage, CPU_PODS, gpu_pods_max=10)))
        before, pods = operator.work, count * (1 + CPU_PODS)
        began = monotonic()
        await client.send()
        await until(
            lambda: len(stage.pods.ready_at) >= pods and len(stage.clusters.ready_at) >= count,
            f"{count} clusters say that they are ready",
            seconds=_DEADLINE_SECONDS,
        )
        yield stage, operator, _grown(stage, began, pods, operator.work - before)


async def gpu_floor(clusters: int, pods_each: int) -> Grown:
    """(b) by the bare client: the GPU workers alone."""
    async with staged(0) as stage:
        bodies = [manifests.cluster(number, "127.0.0.1", cpu_pods=0, gpu_pods_max=1) for number in range(clusters)]
        parts = [pod for body in bodies for pod in manifests.gpu_workers(body, pods_each)]
        return await _by_hand(stage, [*creations(parts)], pods=clusters * pods_each)


async def gpu_operator(clusters: int, pods_each: int) -> Grown:
    """(b) by the operator: every scheduler asks for so many GPU workers at the same time."""
    async with empty_clusters(clusters, pods_each) as (stage, operator):
        before, pods = operator.work, clusters * pods_each
        began = monotonic()
        want_gpus(stage, [pods_each] * clusters)
        await ready(stage, clusters + pods)
        return _grown(stage, began, pods, operator.work - before)


@asynccontextmanager
async def empty_clusters(
    count: int, gpu_pods_max: int, cpu_pods: int = 0
) -> AsyncIterator[tuple[Stage, OperatorProcess]]:
    """The operator with so many clusters, each a scheduler that is heard, `cpu_pods`, and an empty GPU pool."""
    async with staged(count) as stage, stage.operating() as operator:
        await add_clusters(stage, gpu_pods_max, cpu_pods)
        yield stage, operator


async def add_clusters(stage: Stage, gpu_pods_max: int, cpu_pods: int = 0) -> None:
    """Make one cluster for each played scheduler, and wait until the operator listens to all."""
    bodies = _clusters(stage, cpu_pods, gpu_pods_max)
    client = await stage.prepared(creations(bodies))
    await client.send()
    await ready(stage, len(bodies) * (1 + cpu_pods))
    await until(
        lambda: all(played.polls for played in stage.schedulers.by_address.values()),
        f"the operator listens to {len(bodies)} schedulers",
        seconds=_DEADLINE_SECONDS,
    )


def want_gpus(stage: Stage, tasks: list[int]) -> None:
    """The schedulers say at once that so many long GPU tasks wait, one number for each."""
    for played, count in zip(stage.schedulers.by_address.values(), tasks, strict=True):
        played.want(count, seconds_a_task=LONG_TASK_SECONDS, GPU=1)


async def ready(stage: Stage, pods: int) -> None:
    """Wait until so many pods are ready."""
    await until(lambda: len(stage.pods.ready_at) >= pods, f"{pods} pods are ready", seconds=_DEADLINE_SECONDS)


async def _by_hand(stage: Stage, requests: list[str], *, pods: int) -> Grown:
    client = await stage.prepared(requests)
    began = monotonic()
    await client.send()
    await ready(stage, pods)
    return _grown(stage, began, pods, None)


def _grown(stage: Stage, began: float, pods: int, work: Work | None) -> Grown:
    made, ended = max(stage.pods.created_at.values()), max(stage.pods.ready_at.values())
    said = max(stage.clusters.ready_at.values(), default=ended) if work is not None else ended
    return Grown(pods, made - began, ended - began, max(ended, said) - began, work)


def _clusters(stage: Stage, cpu_pods: int, gpu_pods_max: int) -> list[manifests.Json]:
    return [
        manifests.cluster(number, address, cpu_pods=cpu_pods, gpu_pods_max=gpu_pods_max)
        for number, address in enumerate(stage.addresses)
    ]
