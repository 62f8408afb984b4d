"""The plot: speed by GPUs, the first result's steps, what the pipeline held, and the rates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.gpu import figures as f
from benchmarks.gpu.figures import Json
from benchmarks.testbed.report import Sample

mpl.use("Agg")

_WHOLE = "whole"


def draw(records: Sequence[Json], path: Path) -> None:
    """Write a PNG; what was not measured stays empty."""
    figure = Figure(figsize=(12, 8), layout="constrained")
    (speed, steps), (held, rates) = figure.subplots(2, 2)
    _speed(speed, records)
    _steps(steps, f.first_steps(f.figures_of(records, "first")))
    _held(held, f.figures_of(records, "pipeline"))
    _rates(rates, f.rates(f.figures_of(records, "transfer")))
    if records:
        gpus = records[-1]["hardware"]["gpus"]
        figure.suptitle(f"{gpus['count']} GPUs; {'; '.join(sorted(set(gpus['names'])))}", fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _speed(axes: Any, records: Sequence[Json]) -> None:
    most = 1
    for name in ("classic", "scaling"):
        measured = f.figures_of(records, name)
        for shape in dict.fromkeys(row["shape"] for figures in measured for row in figures["rows"]):
            points = sorted(f.speedups(measured, shape).items())
            if points:
                most = max(most, points[-1][0])
                axes.plot(*zip(*points, strict=True), marker="o", label=shape)
    axes.plot([1, most], [1, most], color="grey", linestyle="--", linewidth=0.8, label="in proportion")
    axes.set(xlabel="GPUs", ylabel="times one GPU", title="Speed")
    axes.legend(fontsize="small")


def _steps(axes: Any, variants: dict[str, dict[str, Sample]]) -> None:
    for row, (_, mine) in enumerate(variants.items()):
        begin = 0.0
        for number, (step, sample) in enumerate((s, v) for s, v in mine.items() if s != _WHOLE):
            axes.barh(row, sample.median, left=begin, color=f"C{number}", label=step if row == 0 else None)
            begin += sample.median
    axes.set_yticks(range(len(variants)), list(variants))
    axes.set(xlabel="seconds (medians of the steps)", title="First GPU task until its result, from no GPU pod")
    if variants:
        axes.legend(fontsize="small", ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.15))


def _held(axes: Any, measured: Sequence[Json]) -> None:
    """Of the last run: when each GPU pod had its GPU."""
    ticks: list[str] = []
    if measured:
        for who, colour in (("fixed", "#9aa0a6"), ("autoscaled", "#5b2a86")):
            run = measured[-1][who][-1]
            for begin, end in run["held"]:
                axes.barh(len(ticks), end - max(begin, 0.0), left=max(begin, 0.0), color=colour)
                ticks.append(who)
            axes.axvline(run["seconds"], color=colour, linestyle="--", linewidth=0.8)
    axes.set_yticks(range(len(ticks)), ticks)
    axes.set(xlabel="seconds since the program began (dashed: its end)", title="Pipeline: GPUs held")


def _rates(axes: Any, rates: dict[tuple[str, str, int], Sample]) -> None:
    for row, sample in enumerate(rates.values()):
        axes.barh(row, sample.median, color=f"C{row}")
        axes.text(sample.median, row, f" {sample.median:.1f}", va="center")
    axes.set_yticks(range(len(rates)), [f"{where}\n{how}" for where, how, _ in rates], fontsize="small")
    axes.set(xlabel="GB/s", title="From one GPU to another")
    if rates:
        axes.set_xscale("log")
        axes.margins(x=0.15)  # for the longest bar's figure
