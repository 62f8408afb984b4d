"""The time that the operator takes to make many objects, beside a bare client that makes the same ones.

(a) many clusters of a few pods, until all report ready; (b) the GPU pools of many clusters from 0 to many, at once.
(c) how much memory the operator needs as its clusters grow: resident memory, in MB of 10^6 bytes. Each side has a
testbed of its own. Seconds are counted from the first request until the last event is heard.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic

from benchmarks.scale.operator_process import CountingOperator, Work, operating
from benchmarks.testbed import manifests
from benchmarks.testbed.cluster import SimulatedCluster, simulated_cluster
from benchmarks.testbed.manifests import creations
from benchmarks.testbed.schedulers import LONG_TASK_SECONDS
from benchmarks.testbed.watch import until

CPU_PODS = 3
"""With the scheduler, (a) has 4 pods a cluster."""
_DEADLINE_SECONDS = 400


@dataclass(frozen=True)
class Grown:
    """The times of one side, in seconds. `done`: what is asked for holds: pods ready, and clusters that say so."""

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
    async with simulated_cluster(count) as testbed:
        bodies = testbed.manifests(CPU_PODS, gpu_pods_max=10)
        parts = [*manifests.shared_by(bodies), *(p for body in bodies for p in (body, *manifests.made_of(body)))]
        return await _by_hand(testbed, [*creations(parts)], pods=count * (1 + CPU_PODS))


@asynccontextmanager
async def clusters_operator(count: int) -> AsyncIterator[tuple[SimulatedCluster, CountingOperator, Grown]]:
    """(a) by the operator; the clusters go on until the block ends."""
    async with simulated_cluster(count) as testbed, operating(testbed) as operator:
        client = await testbed.prepared(creations(testbed.manifests(CPU_PODS, gpu_pods_max=10)))
        before, pods = operator.work, count * (1 + CPU_PODS)
        began = monotonic()
        await client.send()
        await until(
            lambda: len(testbed.pods.ready_at) >= pods and len(testbed.clusters.ready_at) >= count,
            f"{count} clusters say that they are ready",
            seconds=_DEADLINE_SECONDS,
        )
        yield testbed, operator, _grown(testbed, began, pods, operator.work - before)


async def gpu_floor(clusters: int, pods_each: int) -> Grown:
    """(b) by the bare client: the GPU workers alone."""
    async with simulated_cluster(0) as testbed:
        bodies = [manifests.cluster(number, "127.0.0.1", cpu_pods=0, gpu_pods_max=1) for number in range(clusters)]
        parts = [pod for body in bodies for pod in manifests.gpu_workers(body, pods_each)]
        return await _by_hand(testbed, [*creations(parts)], pods=clusters * pods_each)


async def gpu_operator(clusters: int, pods_each: int) -> Grown:
    """(b) by the operator: every scheduler asks for so many GPU workers at the same time."""
    async with empty_clusters(clusters, pods_each) as (testbed, operator):
        before, pods = operator.work, clusters * pods_each
        began = monotonic()
        want_gpus(testbed, [pods_each] * clusters)
        await testbed.until_ready(clusters + pods)
        return _grown(testbed, began, pods, operator.work - before)


@asynccontextmanager
async def empty_clusters(
    count: int, gpu_pods_max: int, cpu_pods: int = 0
) -> AsyncIterator[tuple[SimulatedCluster, CountingOperator]]:
    """The operator with so many clusters, each a scheduler that is heard, `cpu_pods`, and an empty GPU pool."""
    async with simulated_cluster(count) as testbed, operating(testbed) as operator:
        await testbed.add_clusters(gpu_pods_max, cpu_pods)
        yield testbed, operator


def want_gpus(testbed: SimulatedCluster, tasks: list[int]) -> None:
    """The schedulers say at once that so many long GPU tasks wait, one number for each."""
    for scheduler, count in zip(testbed.schedulers.by_address.values(), tasks, strict=True):
        scheduler.want(count, seconds_a_task=LONG_TASK_SECONDS, GPU=1)


async def _by_hand(testbed: SimulatedCluster, requests: list[str], *, pods: int) -> Grown:
    client = await testbed.prepared(requests)
    began = monotonic()
    await client.send()
    await testbed.until_ready(pods)
    return _grown(testbed, began, pods, None)


def _grown(testbed: SimulatedCluster, began: float, pods: int, work: Work | None) -> Grown:
    made, ended = max(testbed.pods.created_at.values()), max(testbed.pods.ready_at.values())
    said = max(testbed.clusters.ready_at.values(), default=ended) if work is not None else ended
    return Grown(pods, made - began, ended - began, max(ended, said) - began, work)


@dataclass(frozen=True)
class Weight:
    """The operator at so many pods, schedulers included, once nothing moves any more."""

    pods: int
    resident_mb: float
    peak_mb: float


@dataclass(frozen=True)
class Memory:
    """All weights, the first at no cluster; and a second operator, started when all pods were there."""

    weights: tuple[Weight, ...]
    restarted_mb: float
    restart_seconds: float

    @property
    def base_mb(self) -> float:
        """At no cluster."""
        return self.weights[0].resident_mb

    @property
    def mb_a_pod(self) -> float:
        """What a pod costs beyond the base, its share of its cluster included, where there are most pods."""
        most = self.weights[-1]
        return (most.resident_mb - self.base_mb) / most.pods


async def memory(clusters: int, totals: Sequence[int]) -> Memory:
    """Grow `clusters` clusters until they have `totals` pods, one after the other. A total counts the schedulers."""
    async with simulated_cluster(clusters) as testbed:
        async with operating(testbed) as operator:
            weights = [await _weight(operator, 0)]
            await testbed.add_clusters(gpu_pods_max=-(-totals[-1] // clusters))
            for total in totals:
                want_gpus(testbed, _spread(total - clusters, clusters))
                await testbed.until_ready(total)
                weights.append(await _weight(operator, total))
        began = monotonic()
        before = {address: scheduler.polls for address, scheduler in testbed.schedulers.by_address.items()}
        async with operating(testbed) as operator:
            await operator.at_rest()
            seconds = monotonic() - began
            unheard = [a for a, scheduler in testbed.schedulers.by_address.items() if scheduler.polls == before[a]]
            assert not unheard, f"the restarted operator does not listen to {unheard[:3]}"
            return Memory(tuple(weights), operator.process.resident_mb, seconds)


async def _weight(operator: CountingOperator, pods: int) -> Weight:
    await operator.at_rest()
    return Weight(pods, operator.process.resident_mb, operator.process.peak_mb)


def _spread(pods: int, clusters: int) -> list[int]:
    """So many pods over the clusters, as evenly as it goes."""
    return [pods // clusters + (number < pods % clusters) for number in range(clusters)]
