"""The command: what is measured, and what is printed and kept."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.scale import blocks, growth, latency, metrics, preload
from benchmarks.scale.blocks import Longest
from benchmarks.scale.growth import Grown, Memory
from benchmarks.scale.latency import EventCost, Latency
from benchmarks.scale.operator_process import Work
from benchmarks.testbed.report import NOT_MEASURED, describe, is_met, keep, markdown, one_line, with_unit
from local.programs.binaries import KUBERNETES_VERSION

Tell = Callable[[str], None]
Rows = Iterable[tuple[str, ...]]  # cells from the left; what is missing is empty
PARTS = ("clusters", "gpus", "memory", "latency", "preload", "blocks", "metrics")
_HEAD = ("", "operator", "floor", "ratio", "wanted", "met")
_MS = 1000.0
# What is wanted on 2 cores.
_RATIO, _MB_A_POD, _BASE_MB, _P50_SECONDS, _P99_SECONDS, _RATE = 1.5, 0.01, 130.0, 0.1, 1.0, 0.97
_BLOCK_SECONDS = 0.020
# Whether the metrics are read: both ways in turn, so that what drifts meets both.
_SCRAPED = (False, True, True, False)
_METRICS_MB, _SCRAPE_SECONDS = 15.0, 0.3


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
    """Of each cluster."""
    event_rounds: int
    preload_tasks: int
    preload_batches: int
    blocks_tasks: int
    blocks_workers: int
    metrics_clusters: int
    scrapes: int


FULL = Sizes(
    clusters=1000,
    gpu_clusters=100,
    gpu_pods_each=100,
    memory_clusters=100,
    memory_pods=(150, 1000, 4000, 10_000),
    latency_clusters=100,
    probes=500,
    probe_pause_seconds=0.05,
    changes_a_second=1.0,
    event_rounds=10,
    preload_tasks=100_000,
    preload_batches=400,
    blocks_tasks=1_000_000,
    blocks_workers=1000,
    metrics_clusters=1000,
    scrapes=20,
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
    changes_a_second=1.0,
    event_rounds=2,
    preload_tasks=2000,
    preload_batches=2,
    blocks_tasks=5000,
    blocks_workers=20,
    metrics_clusters=20,
    scrapes=2,
)


@dataclass(frozen=True)
class Pair:
    """One growth: by the bare client, and by the operator."""

    floor: Grown
    operator: Grown

    @property
    def done(self) -> float:
        """The operator's time until all is done through the floor's."""
        return self.operator.done_seconds / self.floor.done_seconds

    @property
    def created(self) -> float:
        """The same until all pods exist."""
        return self.operator.created_seconds / self.floor.created_seconds


@dataclass(frozen=True)
class Results:
    """The figures; None: not measured."""

    clusters: Pair | None = None
    gpus: Pair | None = None
    memory: Memory | None = None
    latencies: Sequence[Latency] = ()
    event_cost: EventCost | None = None
    preload_rate: float | None = None
    longest_block: Longest | None = None
    metrics: metrics.Cost | None = None

    @property
    def latency(self) -> Latency | None:
        """At the fewest clusters: the one that is bounded."""
        return min(self.latencies, key=lambda item: item.clusters, default=None)


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
    if "metrics" in parts:
        tell(f"metrics: {sizes.metrics_clusters} clusters, read {sizes.scrapes} times")
        cost = metrics.measure(sizes.metrics_clusters, sizes.scrapes)
        tell("\n".join(metrics.describe(cost)))
        results = replace(results, metrics=cost)
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
        found = [
            await latency.measure(
                testbed,
                operator,
                rate=sizes.changes_a_second,
                probes=sizes.probes,
                pause_seconds=sizes.probe_pause_seconds,
                scraped=scraped,
                first=turn * sizes.probes,
            )
            for turn, scraped in enumerate(_SCRAPED)
        ]
    return replace(results, latencies=found, event_cost=cost)


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
                rate=sizes.changes_a_second,
                probes=sizes.probes,
                pause_seconds=sizes.probe_pause_seconds,
            )
            results = replace(results, latencies=[*results.latencies, found])
    return results


def last_line(results: Results) -> str:
    """One line for whoever reads figures by machine."""
    clusters, gpus, memory, latency = results.clusters, results.gpus, results.memory, results.latency
    values = {
        "clusters_1000": with_unit(clusters.done if clusters else None, "x", 2),
        "gpu_0_to_100": with_unit(gpus.operator.pods_a_second if gpus else None, "pods/s", 0),
        "floor": with_unit(gpus.floor.pods_a_second if gpus else None, "pods/s", 0),
        "rss_per_pod": with_unit(memory.mb_a_pod if memory else None, "MB", 4),
        "p50": with_unit(latency.percentile(50) if latency else None, "s", 3),
        "p99": with_unit(latency.percentile(99) if latency else None, "s", 3),
        "preload_rate": with_unit(results.preload_rate, "x", 3),
        "longest_block": with_unit(_MS * results.longest_block.worst[1] if results.longest_block else None, "ms", 1),
        "scrape": with_unit(results.metrics.median_seconds if results.metrics else None, "s", 3),
    }
    return one_line("scale", values)


def table(results: Results) -> str:
    """Markdown: what, the operator's figure, the floor's, their ratio, what is wanted, whether that is met."""
    rows = [
        *_growth_rows(results.clusters, "(a) clusters", "until all clusters report ready"),
        *_growth_rows(results.gpus, "(b) GPU pools", "until all are ready"),
        *_memory_rows(results.memory),
        *(row for latency in results.latencies for row in _latency_rows(latency, bounded=latency is results.latency)),
        *_event_cost_rows(results.event_cost),
        *_preload_rows(results.preload_rate),
        *_longest_rows(results.longest_block),
        *_metrics_rows(results.metrics),
    ]
    return markdown(_HEAD, rows)


def kept(results: Results) -> dict[str, Any]:
    """All figures as JSON."""
    return {"scale": last_line(results), **asdict(results)}


def _growth_rows(pair: Pair | None, title: str, until: str) -> Rows:
    if pair is None:
        return
    ours, floor = pair.operator, pair.floor
    rows = (
        (until, ours.done_seconds, floor.done_seconds, pair.done),
        ("until all pods exist", ours.created_seconds, floor.created_seconds, pair.created),
    )
    for words, mine, theirs, ratio in rows:
        what = f"{title}: {ours.pods} pods {words}"
        yield what, f"{mine:.1f} s", f"{theirs:.1f} s", f"{ratio:.2f}x", f"<= {_RATIO}x", is_met(ratio <= _RATIO)
    rates = (f"{side.pods_a_second:.0f} pods/s" for side in (ours, floor))
    yield f"{title}: rate of creation", *rates
    if ours.work is not None:
        yield f"{title}: what the operator did", _work(ours.work)


def _memory_rows(memory: Memory | None) -> Rows:
    if memory is None:
        return
    for weight in memory.weights:
        if not weight.pods:
            met = is_met(weight.resident_mb < _BASE_MB)
            yield "(c) memory, no cluster", f"{weight.resident_mb:.0f} MB", "", "", f"< {_BASE_MB:.0f} MB", met
            continue
        figure = f"{weight.resident_mb:.0f} MB (peak {weight.peak_mb:.0f})"
        yield f"(c) memory, {weight.pods} pods", figure
    met = is_met(memory.mb_a_pod < _MB_A_POD)
    yield "(c) memory of a pod, beyond the base", f"{memory.mb_a_pod:.4f} MB", "", "", f"< {_MB_A_POD} MB", met
    figure = f"{memory.restarted_mb:.0f} MB, {memory.restart_seconds:.1f} s until it rests"
    yield "(c) restarted with all pods there", figure


def _latency_rows(latency: Latency, *, bounded: bool) -> Rows:
    title = f"(d) demand to pod, {latency.clusters} clusters, {latency.changes_a_second:.0f} changes/s"
    title += ", metrics read each second" if latency.scraped else ""
    for percent, limit in ((50, _P50_SECONDS), (99, _P99_SECONDS)):
        value = latency.percentile(percent)
        wanted = (f"< {limit} s", is_met(value < limit)) if bounded else ("", "")
        yield f"{title}: p{percent} of {len(latency.seconds)}", f"{value:.3f} s", "", "", *wanted
    yield f"{title}: longest", f"{max(latency.seconds):.3f} s"
    work = latency.work
    share = f"{100 * work.cpu_seconds / latency.elapsed_seconds:.0f} % of a core"
    yield f"(e) CPU a pass, {latency.clusters} clusters", f"{_a_piece(work, work.counts.passes)}, {share}"
    yield f"(e) CPU an answer, {latency.clusters} clusters", _a_piece(work, work.counts.answers)


def _event_cost_rows(cost: EventCost | None) -> Rows:
    if cost is not None:
        yield "(e) CPU an event, with its pass", _a_piece(cost.work, cost.work.counts.events)
        yield f"(e) {cost.changes} changes of pods", _work(cost.work)


def _preload_rows(rate: float | None) -> Rows:
    if rate is not None:
        what = "(f) the scheduler's rate with the preload"
        yield what, f"{rate:.3f}x", "1", f"{rate:.3f}x", f">= {_RATE}x", is_met(rate >= _RATE)


def _longest_rows(longest: Longest | None) -> Rows:
    if longest is not None:
        name, seconds = longest.worst
        what = f"(g) the preload's longest block of the loop, {longest.tasks} tasks, {longest.workers} workers"
        met = is_met(seconds <= _BLOCK_SECONDS)
        yield what, f"{_MS * seconds:.1f} ms, {name}", "", "", f"<= {_MS * _BLOCK_SECONDS:.0f} ms", met


def _metrics_rows(cost: metrics.Cost | None) -> Rows:
    if cost is not None:
        what, mb, seconds = f"(h) metrics of {cost.clusters} clusters", cost.resident_mb, cost.median_seconds
        yield f"{what}: memory", f"{mb:.1f} MB", "", "", f"< {_METRICS_MB:.0f} MB", is_met(mb < _METRICS_MB)
        met = is_met(seconds < _SCRAPE_SECONDS)
        yield (
            f"{what}: median of {len(cost.seconds)} scrapes",
            f"{seconds:.3f} s",
            "",
            "",
            f"< {_SCRAPE_SECONDS} s",
            met,
        )
        yield f"{what}: CPU of a scrape of {cost.series} series", f"{cost.cpu_seconds:.3f} s"


def _work(work: Work) -> str:
    c = work.counts
    return (
        f"{work.cpu_seconds:.1f} s CPU, {c.passes} passes, {c.events} events, {c.answers} answers,"
        f" {c.requests} requests, {c.statuses} of them statuses"
    )


def _a_piece(work: Work, count: int) -> str:
    return f"{_MS * work.cpu_seconds / count:.2f} ms ({count})" if count else NOT_MEASURED


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
        keep(arguments.json, about | kept(results))
    print(f"\n{table(results)}\n\n{last_line(results)}")


if __name__ == "__main__":
    main()
