"""Figures in words: the table, the last line, and what is kept in a file. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.scale.blocks import Longest
from benchmarks.scale.growth import Grown, Memory
from benchmarks.scale.latency import EventCost, Latency
from benchmarks.scale.operator_process import Work
from benchmarks.testbed.report import NOT_MEASURED, is_met, markdown, one_line, with_unit

_HEAD = ("", "operator", "floor", "ratio", "wanted", "met")
_MS = 1000.0
# What is wanted on 2 cores.
_RATIO, _MB_A_POD, _BASE_MB, _P50_SECONDS, _P99_SECONDS, _RATE = 1.5, 0.01, 130.0, 0.1, 1.0, 0.97
_BLOCK_SECONDS = 0.020


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

    @property
    def latency(self) -> Latency | None:
        """At the fewest clusters: the one that is bounded."""
        return min(self.latencies, key=lambda item: item.clusters, default=None)


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
    }
    return one_line("scale", values)


def table(results: Results) -> str:
    """Markdown: what, the operator's figure, the floor's, their ratio, what is wanted, whether that is met."""
    rows = [
        *_growth(results.clusters, "(a) clusters", "until all clusters report ready"),
        *_growth(results.gpus, "(b) GPU pools", "until all are ready"),
        *_memory(results.memory),
        *(row for latency in results.latencies for row in _latency(latency, bounded=latency is results.latency)),
        *_event_cost(results.event_cost),
        *_preload(results.preload_rate),
        *_longest(results.longest_block),
    ]
    return markdown(_HEAD, rows)


def kept(results: Results) -> dict[str, Any]:
    """All figures as JSON."""
    return {"scale": last_line(results), **asdict(results)}


Rows = Iterable[tuple[str, ...]]  # cells from the left; what is missing is empty


def _growth(pair: Pair | None, title: str, until: str) -> Rows:
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


def _memory(memory: Memory | None) -> Rows:
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


def _latency(latency: Latency, *, bounded: bool) -> Rows:
    title = f"(d) demand to pod, {latency.clusters} clusters, {latency.changes_a_second:.0f} changes/s"
    for percent, limit in ((50, _P50_SECONDS), (99, _P99_SECONDS)):
        value = latency.percentile(percent)
        wanted = (f"< {limit} s", is_met(value < limit)) if bounded else ("", "")
        yield f"{title}: p{percent} of {len(latency.seconds)}", f"{value:.3f} s", "", "", *wanted
    yield f"{title}: longest", f"{max(latency.seconds):.3f} s"
    work = latency.work
    share = f"{100 * work.cpu_seconds / latency.elapsed_seconds:.0f} % of a core"
    yield f"(e) CPU a pass, {latency.clusters} clusters", f"{_a_piece(work, work.counts.passes)}, {share}"
    yield f"(e) CPU an answer, {latency.clusters} clusters", _a_piece(work, work.counts.answers)


def _event_cost(cost: EventCost | None) -> Rows:
    if cost is not None:
        yield "(e) CPU an event, with its pass", _a_piece(cost.work, cost.work.counts.events)
        yield f"(e) {cost.changes} changes of pods", _work(cost.work)


def _preload(rate: float | None) -> Rows:
    if rate is not None:
        what = "(f) the scheduler's rate with the preload"
        yield what, f"{rate:.3f}x", "1", f"{rate:.3f}x", f">= {_RATE}x", is_met(rate >= _RATE)


def _longest(longest: Longest | None) -> Rows:
    if longest is not None:
        name, seconds = longest.worst
        what = f"(g) the preload's longest block of the loop, {longest.tasks} tasks, {longest.workers} workers"
        met = is_met(seconds <= _BLOCK_SECONDS)
        yield what, f"{_MS * seconds:.1f} ms, {name}", "", "", f"<= {_MS * _BLOCK_SECONDS:.0f} ms", met


def _work(work: Work) -> str:
    c = work.counts
    return (
        f"{work.cpu_seconds:.1f} s CPU, {c.passes} passes, {c.events} events, {c.answers} answers,"
        f" {c.requests} requests, {c.statuses} of them statuses"
    )


def _a_piece(work: Work, count: int) -> str:
    return f"{_MS * work.cpu_seconds / count:.2f} ms ({count})" if count else NOT_MEASURED
