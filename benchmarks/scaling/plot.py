"""The plot: each policy's GPU-seconds beside its makespan, and the GPUs of one trace of each family over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks.scaling.figures import Run
from benchmarks.scaling.report import ADAPTIVE, FIXED, GPUDASK

_COLOURS = {GPUDASK: "#5b2a86", ADAPTIVE: "#d9822b", FIXED: "#9aa0a6"}
_COLUMNS = 2


def draw(runs: Sequence[Run], path: Path) -> None:
    """Write a PNG."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the choice of the backend

    families = list(dict.fromkeys(run.family for run in runs))
    rows = 1 + -(-len(families) // _COLUMNS)
    figure = plt.figure(figsize=(12, 3 + 2.2 * rows), layout="constrained")
    grid = figure.add_gridspec(rows, _COLUMNS, height_ratios=[2.4, *[1] * (rows - 1)])
    _ratios(figure.add_subplot(grid[0, :]), runs)
    for number, family in enumerate(families):
        axes = figure.add_subplot(grid[1 + number // _COLUMNS, number % _COLUMNS])
        first = next(run.trace for run in runs if run.family == family)
        _course(axes, [run for run in runs if run.trace == first])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _ratios(axes: Any, runs: Sequence[Run]) -> None:
    for contestant, colour in _COLOURS.items():
        mine = [run for run in runs if run.contestant == contestant]
        xs, ys = [run.makespan_ratio for run in mine], [run.gpu_seconds_ratio for run in mine]
        axes.scatter(xs, ys, s=22, color=colour, label=contestant, alpha=0.8)
    axes.axhline(1.0, color="black", linewidth=0.6)
    axes.axvline(1.0, color="black", linewidth=0.6)
    axes.set(yscale="log", xlabel="makespan, times the oracle's", ylabel="GPU-seconds held, times the oracle's")
    axes.legend()


def _course(axes: Any, runs: Sequence[Run]) -> None:
    for run in runs:
        if run.contestant == FIXED:
            continue
        times, gpus = zip(*run.gpu_pods, strict=True) if run.gpu_pods else ((0.0,), (0,))
        axes.step(times, gpus, where="post", color=_COLOURS[run.contestant], linewidth=1.1)
    axes.set_title(runs[0].trace, fontsize=9)
    axes.set(xlabel="seconds", ylabel="GPUs held")
