"""Medians and ratios of what was measured. Pure: records in, numbers out; None for what was not measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

from benchmarks.testbed.report import Sample

Json = dict[str, Any]

_GB = 1e9
_CLASSIC_BYTES = {"classic 80 GB": 80e9, "classic 800 GB": 800e9}
LARGE = "classic 800 GB"
ONE_PROCESS, NANNY, KEPT = "one process", "below a nanny", "one process, kernels kept"
"""How the worker of a pod's only GPU runs, and whether the node keeps the kernels that others compiled."""
# What NumPy's users had when this was first published, and with whose chunks it was measured elsewhere.
_BIG_CHUNK, _NEW = 100_000_000, "default_rng"


def figures_of(records: Iterable[Json], name: str) -> list[Json]:
    """The figures of every time that this was measured."""
    return [record["figures"] for record in records if record["measurement"] == name]


def samples(rows: Iterable[Json], *keys: str) -> dict[tuple[Any, ...], Sample]:
    """The seconds of all rows that agree in `keys`."""
    collected: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        collected.setdefault(tuple(row[key] for key in keys), []).extend(row["seconds"])
    return {key: Sample(tuple(values)) for key, values in collected.items() if values}


def speedups(measured: Sequence[Json], shape: str) -> dict[int, float]:
    """How many times as fast as on one GPU, by the number of GPUs.

    Each call finds anew how long its tasks are, so a call is compared with itself; then the median of all calls.
    """
    ratios: dict[int, list[float]] = {}
    for figures in measured:
        mine = samples((row for row in figures["rows"] if row["shape"] == shape), "gpus")
        one = mine.get((1,))
        for (gpus,), sample in mine.items():
            if one:
                ratios.setdefault(gpus, []).append(one.median / sample.median)
    return {gpus: median(values) for gpus, values in ratios.items()}


def worst_speedup(measured: Sequence[Json], gpus: int) -> float | None:
    """The least of all shapes."""
    shapes = {row["shape"] for figures in measured for row in figures["rows"]}
    found = [speedups(measured, shape).get(gpus) for shape in shapes]
    return min((ratio for ratio in found if ratio is not None), default=None)


def cpu_seconds(rows: Iterable[Json], shape: str, *, one_thread: bool) -> dict[tuple[int, int, str], Sample]:
    """The seconds of the whole shape, extrapolated from what was measured: by threads, bytes of a chunk, generator."""
    scaled = [
        row | {"seconds": [seconds * _CLASSIC_BYTES[shape] / row["measured_bytes"] for seconds in row["seconds"]]}
        for row in rows
        if (row["threads"] == 1) == one_thread
    ]
    return {(t, c, g): sample for (t, c, g), sample in samples(scaled, "threads", "chunk_bytes", "generator").items()}


def times_one_thread(measured: Sequence[Json], shape: str, gpus: int, generator: str = _NEW) -> float | None:
    """How many times as fast as one thread whose chunks do not fit into its cache, either."""
    rows = [row for figures in measured for row in figures["cpu_rows"]]
    threads = cpu_seconds(rows, shape, one_thread=True)
    chosen = [s for (_, chunk, made_by), s in threads.items() if chunk >= _BIG_CHUNK and made_by == generator]
    fast = samples((row for figures in measured for row in figures["rows"] if row["shape"] == shape), "gpus")
    return chosen[0].median / fast[(gpus,)].median if chosen and (gpus,) in fast else None


def overheads(measured: Sequence[Json]) -> dict[str, float]:
    """The operator's seconds through `LocalCUDACluster`'s: of each shape, and of all together under `all`."""
    ratios: dict[str, list[float]] = {}
    for figures in measured:
        ours, theirs = (samples(figures[who], "shape") for who in ("operator", "local"))
        both = [key for key in ours if key in theirs]
        for key in both:
            ratios.setdefault(key[0], []).append(ours[key].median / theirs[key].median)
        if both:
            whole = sum(ours[key].median for key in both) / sum(theirs[key].median for key in both)
            ratios.setdefault("all", []).append(whole)
    return {shape: median(values) for shape, values in ratios.items()}


def first_steps(measured: Sequence[Json]) -> dict[str, dict[str, Sample]]:
    """By variant: the seconds of each step, and of the whole under `whole`."""
    collected: dict[str, dict[str, list[float]]] = {}
    for run in (run for figures in measured for run in figures["runs"]):
        mine = collected.setdefault(run["variant"], {})
        for step, seconds in {**run["steps"], "whole": sum(run["steps"].values())}.items():
            mine.setdefault(step, []).append(seconds)
    return {
        variant: {step: Sample(tuple(values)) for step, values in mine.items()} for variant, mine in collected.items()
    }


def pipeline_ratio(measured: Sequence[Json], figure: str) -> float | None:
    """The autoscaled pool's median through the fixed pool's."""
    both = [[row[figure] for figures in measured for row in figures[who]] for who in ("autoscaled", "fixed")]
    return median(both[0]) / median(both[1]) if all(both) else None


def uneven_share(measured: Sequence[Json]) -> float | None:
    """Of the GPU-seconds held those that were used, by the ledger: the median of all runs."""
    return median(shares) if (shares := [r["used"] / r["held"] for m in measured for r in m["runs"]]) else None


def rates(measured: Sequence[Json]) -> dict[tuple[str, str, int], Sample]:
    """GB/s (10^9 bytes) by where, how, and the bytes of an array."""
    return _by_way(measured, lambda row: [row["nbytes"] / seconds / _GB for seconds in row["seconds"]])


def delays(measured: Sequence[Json]) -> dict[tuple[str, str, int], Sample]:
    """Seconds that next to nothing took in the same way, keyed as `rates`: what of an array's time is Dask's own."""
    return _by_way(measured, lambda row: row.get("empty_seconds", []))


def _by_way(measured: Sequence[Json], values_of: Callable[[Json], list[float]]) -> dict[tuple[str, str, int], Sample]:
    collected: dict[tuple[str, str, int], list[float]] = {}
    for row in (row for figures in measured for row in figures["rows"]):
        collected.setdefault((row["where"], row["how"], row["nbytes"]), []).extend(values_of(row))
    return {key: Sample(tuple(values)) for key, values in collected.items() if values}


def rate(measured: Sequence[Json], where: str, *, direct: bool) -> float | None:
    """The best median GB/s of this place: from GPU to GPU directly, or not."""
    found = [
        sample.median
        for (place, how, _), sample in rates(measured).items()
        if place == where and _direct(how) == direct
    ]
    return max(found, default=None)


def _direct(how: str) -> bool:
    return how.startswith("dask, ucx") or "reach each other" in how
