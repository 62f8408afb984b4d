"""The command: what is measured, and what is printed and kept."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.scale import blocks, growth, latency, preload, report
from benchmarks.scale.report import Pair, Results
from benchmarks.testbed.report import describe, keep
from local.programs.binaries import KUBERNETES_VERSION

PARTS = ("clusters", "gpus", "memory", "latency", "preload", "blocks")


@dataclass(frozen=True)
class Sizes:
    """The sizes of the measurements."""

    clusters: int
    gpu_clusters: int
    gpu_pods_each: int
    memory_clusters: int
    memory_pods: tuple[int, ...]
    latency_clusters: int
    probes: int
    probe_pause_seconds: float
    changes_a_second: float
    """Of each of `latency_clusters`; of more clusters in inverse proportion, so that together they are as many."""
    event_rounds: int
    preload_tasks: int
    preload_batches: int
    blocks_tasks: int
    blocks_workers: int


FULL = Sizes(
    clusters=1000,
    gpu_clusters=100,
    gpu_pods_each=100,
    memory_clusters=100,
    memory_pods=(150, 1000, 4000, 10_000),
    latency_clusters=100,
    probes=500,
    probe_pause_seconds=0.05,
    changes_a_second=5.0,
    event_rounds=10,
    preload_tasks=100_000,
    preload_batches=400,
    blocks_tasks=1_000_000,
    blocks_workers=1000,
)
SMALL = Sizes(
    clusters=10,
    gpu_clusters=5,
    gpu_pods_each=10,
    memory_clusters=5,
    memory_pods=(10, 30),
    latency_clusters=5,
    probes=20,
    probe_pause_seconds=0.02,
    changes_a_second=5.0,
    event_rounds=2,
    preload_tasks=2000,
    preload_batches=2,
    blocks_tasks=5000,
    blocks_workers=20,
)
Tell = Callable[[str], None]


def measure(sizes: Sizes, parts: Collection[str], tell: Tell) -> Results:
    """Measure the named `parts`, one after the other."""
    results = asyncio.run(_on_the_api_server(sizes, parts, tell))
    if "preload" in parts:
        tell("preload: a real scheduler with and without it")
        costs = preload.measure(sizes.preload_tasks, sizes.preload_batches, tell=tell)
        results = replace(results, preload_rate=preload.worst_rate(costs))
    if "blocks" in parts:
        tell(f"blocks: {sizes.blocks_tasks} tasks and {sizes.blocks_workers} workers in one scheduler with the preload")
        longest = blocks.measure(sizes.blocks_tasks, sizes.blocks_workers, tell)
        tell("\n".join(blocks.describe(longest)))
        results = replace(results, longest_block=longest)
    return results


async def _on_the_api_server(sizes: Sizes, parts: Collection[str], tell: Tell) -> Results:
    results = Results()
    if "latency" in parts:
        results = await _latency(sizes, results, tell)
    if "clusters" in parts:
        results = await _clusters(sizes, results, tell, probe="latency" in parts)
    if "gpus" in parts:
        tell(f"gpus: {sizes.gpu_clusters} pools from 0 to {sizes.gpu_pods_each}, by a bare client")
        floor = await growth.gpu_floor(sizes.gpu_clusters, sizes.gpu_pods_each)
        tell(f"gpus: the same by the operator (the bare client took {floor.done_seconds:.1f} s)")
        pair = Pair(floor, await growth.gpu_operator(sizes.gpu_clusters, sizes.gpu_pods_each))
        results = replace(results, gpus=pair)
    if "memory" in parts:
        tell(f"memory: {sizes.memory_clusters} clusters, up to {sizes.memory_pods[-1]} pods")
        results = replace(results, memory=await growth.memory(sizes.memory_clusters, sizes.memory_pods))
    return results


async def _latency(sizes: Sizes, results: Results, tell: Tell) -> Results:
    """(d) at few clusters, and (e): they have CPU workers, whose changes are the events."""
    tell(f"latency: {sizes.latency_clusters} clusters")
    async with growth.empty_clusters(sizes.latency_clusters, 100, growth.CPU_PODS) as (testbed, operator):
        cost = await latency.event_cost(
            testbed,
            operator,
            clusters=sizes.latency_clusters,
            cpu_pods=growth.CPU_PODS,
            rounds=sizes.event_rounds,
        )
        found = await latency.measure(
            testbed,
            operator,
            rate=sizes.changes_a_second,
            probes=sizes.probes,
            pause_seconds=sizes.probe_pause_seconds,
        )
    return replace(results, latencies=[found], event_cost=cost)


async def _clusters(sizes: Sizes, results: Results, tell: Tell, *, probe: bool) -> Results:
    """(a), and (d) while all these clusters are active."""
    tell(f"clusters: {sizes.clusters}, by a bare client")
    floor = await growth.clusters_floor(sizes.clusters)
    tell(f"clusters: the same by the operator (the bare client took {floor.done_seconds:.1f} s)")
    async with growth.clusters_operator(sizes.clusters) as (testbed, operator, ours):
        results = replace(results, clusters=Pair(floor, ours))
        if probe:
            tell(f"latency: {sizes.clusters} clusters (they were ready after {ours.done_seconds:.1f} s)")
            found = await latency.measure(
                testbed,
                operator,
                rate=sizes.changes_a_second * sizes.latency_clusters / sizes.clusters,
                probes=sizes.probes,
                pause_seconds=sizes.probe_pause_seconds,
            )
            results = replace(results, latencies=[*results.latencies, found])
    return results


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--json", type=Path, help="keep all figures, versions and the machine in this file")
    parser.add_argument("--small", action="store_true", help="a quick check that everything works; no figures to quote")
    parser.add_argument("--only", default=",".join(PARTS), help="what is measured, by commas: %(default)s")
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",")
    if not set(arguments.only) <= set(PARTS):
        parser.error(f"--only is some of {','.join(PARTS)}")
    return arguments


def main() -> None:
    """Measure, print the table, and end with the line for machines."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started ends with it
    about = describe(KUBERNETES_VERSION, ("kopf", "kubernetes", "aiohttp", "distributed"))
    results = measure(SMALL if arguments.small else FULL, arguments.only, lambda words: print(words, flush=True))
    if arguments.json:
        keep(arguments.json, about | report.kept(results))
    print(f"\n{report.table(results)}\n\n{report.last_line(results)}")


if __name__ == "__main__":
    main()
