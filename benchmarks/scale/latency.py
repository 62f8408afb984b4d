"""(d) From a demand to the pod that it asks for, while clusters are active; (e) what activity costs the operator.

Active: the counts of every cluster's scheduler change all the time, once a second, as often as the preload tells of
them.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from time import monotonic

import aiohttp

from benchmarks.scale.operator_process import CountingOperator, Work
from benchmarks.testbed.bare_client import MERGE_PATCH, line
from benchmarks.testbed.cluster import SimulatedCluster
from benchmarks.testbed.manifests import CPU, GPU, NAMESPACE, cluster_name
from benchmarks.testbed.schedulers import LONG_TASK_SECONDS
from benchmarks.testbed.watch import background, until
from gpudask.desired.names import worker_pod

_DEADLINE_SECONDS = 60
_SCRAPE_SECONDS = 1.0  # between two scrapes: more often than any Prometheus


@dataclass(frozen=True)
class Latency:
    """Seconds from a scheduler's word until this process hears of the pod; and what the operator did meanwhile."""

    clusters: int
    changes_a_second: float
    seconds: tuple[float, ...]
    elapsed_seconds: float
    work: Work
    scraped: bool = False
    """Whether its metrics were read meanwhile, once a second."""

    def percentile(self, percent: float) -> float:
        """The smallest value that so many percent of all are not above."""
        ordered = sorted(self.seconds)
        return ordered[max(0, -(-len(ordered) * percent // 100).__trunc__() - 1)]


async def measure(
    testbed: SimulatedCluster,
    operator: CountingOperator,
    *,
    rate: float,
    probes: int,
    pause_seconds: float,
    scraped: bool = False,
    first: int = 0,
) -> Latency:
    """Ask for one GPU pod more in one cluster after the other, `probes` times, `pause_seconds` apart.

    `rate`: how often the counts of each cluster change, a second. `scraped`: read the metrics meanwhile. `first`: the
    number of probes before these.
    """
    clusters = len(testbed.schedulers.by_address)
    beside = [_change_counts(testbed, rate), *([_scrape(operator.metrics)] if scraped else [])]
    async with background(*beside):
        await asyncio.sleep(1.0)  # the first second brings every cluster out of rest
        before, began = operator.work, monotonic()
        seconds = [await _probe(testbed, number, clusters, pause_seconds) for number in range(first, first + probes)]
        work, elapsed = operator.work - before, monotonic() - began
    return Latency(clusters, clusters * rate, tuple(seconds), elapsed, work, scraped)


async def _scrape(url: str) -> None:
    async with aiohttp.ClientSession(raise_for_status=True) as session:
        while True:
            async with session.get(url) as answer:
                await answer.read()
            await asyncio.sleep(_SCRAPE_SECONDS)


async def _probe(testbed: SimulatedCluster, number: int, clusters: int, pause_seconds: float) -> float:
    """One GPU task more; how long until its pod is heard of."""
    which, ordinal = number % clusters, number // clusters
    name = worker_pod(cluster_name(which), GPU, ordinal)
    asked = monotonic()
    scheduler = testbed.pods.scheduler_of(cluster_name(which))
    scheduler.want(ordinal + 1, seconds_a_task=LONG_TASK_SECONDS, GPU=1)
    await until(lambda: name in testbed.pods.created_at, f"pod {name}", seconds=_DEADLINE_SECONDS)
    await asyncio.sleep(pause_seconds)
    return testbed.pods.created_at[name] - asked


async def _change_counts(testbed: SimulatedCluster, rate: float) -> None:
    """All clusters' counts change, `rate` times a second each, evenly spread."""
    every = list(testbed.schedulers.by_address.values())
    random.Random(0).shuffle(every)  # noqa: S311 - only that neighbours do not change one after the other
    began, said = monotonic(), 0
    while True:
        due = int((monotonic() - began) * rate * len(every))
        for number in range(said, due):
            every[number % len(every)].count(1 + number % 97)
        said = max(said, due)
        await asyncio.sleep(0.005)


@dataclass(frozen=True)
class EventCost:
    """So many changes of pods, and what the operator did for them."""

    changes: int
    work: Work


async def event_cost(
    testbed: SimulatedCluster, operator: CountingOperator, *, clusters: int, cpu_pods: int, rounds: int
) -> EventCost:
    """Change an annotation on every CPU pod, `rounds` times."""
    lines = [
        line(
            "PATCH",
            f"/api/v1/namespaces/{NAMESPACE}/pods/{worker_pod(cluster_name(which), CPU, number)}",
            {"metadata": {"annotations": {"scale.gpudask.dev/round": str(turn)}}},
            MERGE_PATCH,
        )
        for turn in range(rounds)
        for number in range(cpu_pods)
        for which in range(clusters)
    ]
    client = await testbed.prepared(lines)
    await operator.at_rest()
    before = operator.work
    await client.send()
    await operator.at_rest()
    return EventCost(len(lines), operator.work - before)
