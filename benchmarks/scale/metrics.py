"""What the metrics of many clusters cost: memory, time of a scrape, and how long a scrape holds the event loop.

    python -m benchmarks.scale.metrics [--clusters 1000] [--scrapes 20]

A process has the statuses of so many clusters, each with a CPU and a GPU pool, and serves their metrics as the operator
does. Another one reads them. The memory is what the process has more once it knows them as metrics and was read, beyond
the statuses, which the operator has anyway. Beside it the same samples by prometheus_client's own exposition.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import io
import json
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psutil  # type: ignore[import-untyped]
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_fd_to_metric_families
from prometheus_client.registry import Collector

from gpudask.api.reasons import Cause, ConditionType
from gpudask.api.status import CauseSeconds, Condition, Demand, OwnerSeconds, PoolStatus, Status
from gpudask.metrics.clusters import ClusterMetrics, Feed, Report
from gpudask.metrics.operator import Metrics
from gpudask.metrics.pools import PoolLimits
from gpudask.metrics.server import MetricsServer, Options

_MB = 1e6
_TICK_SECONDS = 0.001
_PAUSE_SECONDS = 0.6  # between two scrapes: the server allows two a second
_LIMITS = {"cpu": PoolLimits(1, 20), "gpu": PoolLimits(0, 8, has_gpus=True, has_fallback=True)}


@dataclass(frozen=True)
class Cost:
    """The cost of the metrics of `clusters`. `size_mb`: of one scrape, as text. Lags: of the event loop, at most.

    `library_seconds`, `library_mb`: the same samples by prometheus_client, its time and the most memory beyond.
    """

    clusters: int
    series: int
    resident_mb: float
    seconds: tuple[float, ...]
    size_mb: float
    lag_seconds: float
    idle_lag_seconds: float
    cpu_seconds: float
    library_seconds: float
    library_mb: float

    @property
    def median_seconds(self) -> float:
        """Of a scrape, from the request to the last byte."""
        return statistics.median(self.seconds)


def measure(clusters: int, scrapes: int) -> Cost:
    """Serve the metrics in a process of their own, and read them."""
    command = [sys.executable, "-m", "benchmarks.scale.metrics", "--serve", "--clusters", str(clusters)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            before = json.loads(process.stdout.readline())
            time.sleep(_PAUSE_SECONDS * 5)  # the event loop without scrapes
            process.stdin.write("\n")
            process.stdin.flush()
            idle = json.loads(process.stdout.readline())
            took, size = _read(before["port"], scrapes)
            process.stdin.write("\n")
            process.stdin.flush()
            after = json.loads(process.stdout.readline())
            library = json.loads(process.stdout.readline())
        finally:
            process.kill()
    return Cost(
        clusters=clusters,
        series=library["series"],
        resident_mb=after["resident_mb"] - before["resident_mb"],
        seconds=tuple(took),
        size_mb=size / _MB,
        lag_seconds=after["lag_seconds"],
        idle_lag_seconds=idle["lag_seconds"],
        cpu_seconds=(after["cpu_seconds"] - idle["cpu_seconds"]) / scrapes,
        library_seconds=library["seconds"],
        library_mb=library["resident_mb"],
    )


def _read(port: int, scrapes: int) -> tuple[list[float], int]:
    """Read them as Prometheus does, compressed; seconds each, and the size of the text in bytes."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as got:
        size = len(got.read())
    took = []
    for _ in range(scrapes):
        time.sleep(_PAUSE_SECONDS)
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept-Encoding": "gzip"})
        began = time.perf_counter()
        with urllib.request.urlopen(request) as got:  # noqa: S310 - on this machine
            got.read()
        took.append(time.perf_counter() - began)
    return took, size


def a_status(number: int) -> Status:
    """The status of a cluster that works: eight conditions, two pools, all causes, three owners."""
    causes = [CauseSeconds(cause=cause, gpus=1, gpu_seconds=number + 0.123) for cause in Cause]
    owners = [OwnerSeconds(owner=owner, gpu_seconds=number + 0.5) for owner in ("", "team-a", f"person-{number}")]
    gpu = PoolStatus(name="gpu", desired=4, ready=3, pending=1, gpus_held=4, gpus_busy=3, causes=causes, owners=owners)
    cpu = PoolStatus(name="cpu", desired=10, ready=10, demand=Demand(waiting=number, running=20))
    conditions = [Condition(type=kind, status="True", reason="AllReady") for kind in ConditionType]
    return Status(pools=[cpu, gpu], conditions=conditions)


def _known(statuses: list[Status], attribution: tuple[str, ...] = ("team", "project")) -> Metrics:
    metrics = Metrics(clock=time.time)
    metrics.leads = lambda: True
    for number, status in enumerate(statuses):
        values = {name: f"{name}-{number % 50}" for name in attribution}
        cluster = ClusterMetrics(
            f"team-{number % 50}",
            f"cluster-{number}",
            attribution=values,
            feed=lambda: Feed(up=True, age_seconds=1.5),
        )
        cluster.set_report(Report(status, time.time(), dict(_LIMITS), drains_since={"gpu": time.time()}))
        metrics.keep(f"team-{number % 50}/uid-{number}", cluster)
    return metrics


async def _serve(clusters: int) -> None:
    statuses = [a_status(number) for number in range(clusters)]
    process = psutil.Process()
    gc.collect()
    resident = process.memory_info().rss
    metrics = _known(statuses)
    server = MetricsServer(metrics, Options(0))
    task = asyncio.create_task(server.run())
    await server.listens.wait()
    lag = [0.0]
    ticks = asyncio.create_task(_tick(lag))
    _tell(port=server.port, resident_mb=resident / _MB)
    for _ in range(2):
        lag[0] = 0.0
        await asyncio.to_thread(sys.stdin.readline)
        cpu = process.cpu_times()
        _tell(resident_mb=process.memory_info().rss / _MB, lag_seconds=lag[0], cpu_seconds=cpu.user + cpu.system)
    ticks.cancel()
    _tell(**_by_the_library(metrics, process))
    await task


async def _tick(lag: list[float]) -> None:
    while True:
        due = time.perf_counter() + _TICK_SECONDS
        await asyncio.sleep(_TICK_SECONDS)
        lag[0] = max(lag[0], time.perf_counter() - due)


class _Samples(Collector):
    """The same samples as prometheus_client's, made when they are asked for, as a custom collector makes them."""

    def __init__(self, metrics: Metrics) -> None:
        text = io.StringIO(b"".join(metrics.exposition()).decode())
        self.families = list(text_fd_to_metric_families(text))
        self.series = sum(len(family.samples) for family in self.families)

    def collect(self) -> Iterator[Metric]:
        for family in self.families:
            made = Metric(family.name, family.documentation, family.type)
            for sample in family.samples:
                made.add_sample(sample.name, dict(sample.labels), sample.value)
            yield made


def _by_the_library(metrics: Metrics, process: Any) -> dict[str, float]:
    samples = _Samples(metrics)
    registry = CollectorRegistry()
    registry.register(samples)
    gc.collect()
    resident, most, ends = process.memory_info().rss, [0], threading.Event()

    def watch() -> None:
        while not ends.is_set():
            most[0] = max(most[0], process.memory_info().rss)
            time.sleep(0.005)

    watching = threading.Thread(target=watch)
    watching.start()
    began = time.perf_counter()
    generate_latest(registry)
    took = time.perf_counter() - began
    ends.set()
    watching.join()
    return {"series": samples.series, "seconds": took, "resident_mb": (most[0] - resident) / _MB}


def _tell(**values: float) -> None:
    print(json.dumps(values), flush=True)


def describe(cost: Cost) -> list[str]:
    """The figures, a line each."""
    longest, late, idle = max(cost.seconds), 1000 * cost.lag_seconds, 1000 * cost.idle_lag_seconds
    lines = (
        f"{cost.clusters} clusters, {cost.series} series: {cost.resident_mb:.1f} MB beyond their statuses",
        f"a scrape: median {cost.median_seconds:.3f} s, longest {longest:.3f} s of {len(cost.seconds)}",
        f"a scrape: {cost.cpu_seconds:.3f} s of CPU, {cost.size_mb:.1f} MB of text",
        f"the event loop was late by {late:.1f} ms at most, {idle:.1f} ms without scrapes",
        f"by prometheus_client: {cost.library_seconds:.3f} s in one piece, {cost.library_mb:.1f} MB more meanwhile",
    )
    return list(lines)


def main() -> None:
    """Measure, or serve for who measures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.metrics", description=__doc__)
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--scrapes", type=int, default=20)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(_serve(arguments.clusters))
        return
    print("\n".join(describe(measure(arguments.clusters, arguments.scrapes))))


if __name__ == "__main__":
    main()
