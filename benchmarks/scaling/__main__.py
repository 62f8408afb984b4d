"""The command: which seeds and settings, the runs, and what is printed and kept."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.scaling import simulation
from benchmarks.scaling.oracle import Oracle, geometric_mean
from benchmarks.scaling.policies import Adaptive, Fixed, Gpudask
from benchmarks.scaling.simulation import Outcome, Policy
from benchmarks.scaling.trace import FAMILIES, Settings, Trace, all_traces
from benchmarks.testbed.report import keep, markdown, one_line

POLICIES: Sequence[Callable[[], Policy]] = (Gpudask, Adaptive, Fixed)
GPUDASK, ADAPTIVE, FIXED = "gpudask", "adaptive", "fixed"
WANTED_WORST = 1.5
_SEEDS = (1, 2, 3)

Ratio = Callable[["Run"], float]
_COLUMNS = (
    "trace",
    "policy",
    "makespan",
    "x",
    "turnaround x",
    "GPU-s held",
    "x",
    "on nodes x",
    "used",
    "actions",
)
_COLOURS = {GPUDASK: "#5b2a86", ADAPTIVE: "#d9822b", FIXED: "#9aa0a6"}
_PLOTS_A_ROW = 2


@dataclass(frozen=True)
class Run:
    """One policy on one trace. All but counts in seconds or GPU-seconds; `least_…` is the oracle's."""

    trace: str
    family: str
    gpus_per_node: int
    policy: str
    makespan: float
    least_makespan: float
    turnaround: float
    least_turnaround: float
    gpu_seconds: float
    least_gpu_seconds: float
    node_gpu_seconds: float
    least_node_gpu_seconds: float
    gpu_seconds_used: float
    actions: int
    cut: int
    gpu_pods: tuple[tuple[float, int], ...]

    @property
    def makespan_ratio(self) -> float:
        """The makespan by the oracle's."""
        return self.makespan / self.least_makespan

    @property
    def turnaround_ratio(self) -> float:
        """The time from submission to result, over all submissions, by the oracle's."""
        return self.turnaround / self.least_turnaround

    @property
    def gpu_seconds_ratio(self) -> float:
        """GPU-seconds held by pods, by the oracle's for the same service."""
        return self.gpu_seconds / self.least_gpu_seconds

    @property
    def node_gpu_seconds_ratio(self) -> float:
        """GPU-seconds of the nodes with pods on them, by the oracle's for the same service."""
        return self.node_gpu_seconds / self.least_node_gpu_seconds

    def as_json(self) -> dict[str, Any]:
        """Everything but the course."""
        names = [name for name in self.__dataclass_fields__ if name != "gpu_pods"]
        ratios = ("makespan_ratio", "turnaround_ratio", "gpu_seconds_ratio", "node_gpu_seconds_ratio")
        return {"contestant" if name == "policy" else name: getattr(self, name) for name in (*names, *ratios)}


def measure(trace: Trace) -> list[Run]:
    """Every policy on `trace`."""
    oracle = Oracle(trace)
    return [_figures(trace, oracle, simulation.run(trace, policy())) for policy in POLICIES]


def _figures(trace: Trace, oracle: Oracle, outcome: Outcome) -> Run:
    least = oracle.least(outcome.jobs)
    return Run(
        trace=str(trace),
        family=trace.name,
        gpus_per_node=trace.machines.gpus_per_node,
        policy=outcome.policy,
        makespan=outcome.makespan,
        least_makespan=oracle.makespan,
        turnaround=sum(end - trace.submitted[job] for job, end in outcome.jobs.items()),
        least_turnaround=sum(oracle.job_end(job) - trace.submitted[job] for job in outcome.jobs),
        gpu_seconds=outcome.gpu_seconds,
        least_gpu_seconds=least.by_pods,
        node_gpu_seconds=outcome.node_gpu_seconds,
        least_node_gpu_seconds=least.by_nodes,
        gpu_seconds_used=outcome.gpu_seconds_used,
        actions=outcome.actions,
        cut=outcome.executions - len(trace.tasks),
        gpu_pods=outcome.gpu_pods,
    )


def table(runs: Sequence[Run]) -> str:
    """Markdown: the oracle's figures of each trace, then every policy's with ratios to it."""
    rows: list[tuple[str, ...]] = []
    for trace in dict.fromkeys(run.trace for run in runs):
        of_trace = [run for run in runs if run.trace == trace]
        rows.append(_oracle_row(of_trace[0]))
        rows += [_row(run) for run in of_trace]
    return markdown(_COLUMNS, rows)


def _oracle_row(first: Run) -> tuple[str, ...]:
    """The oracle's figures: GPU-seconds for the service of the first policy."""
    held, used = f"{first.least_gpu_seconds:.0f}", f"{first.gpu_seconds_used:.0f}"
    return (first.trace, "oracle", f"{first.least_makespan:.0f}", "", "", held, "", "", used, "")


def _row(run: Run) -> tuple[str, ...]:
    return (
        "",
        run.policy,
        f"{run.makespan:.0f}",
        f"{run.makespan_ratio:.2f}",
        f"{run.turnaround_ratio:.2f}",
        f"{run.gpu_seconds:.0f}",
        f"{run.gpu_seconds_ratio:.2f}",
        f"{run.node_gpu_seconds_ratio:.2f}",
        f"{run.gpu_seconds_used:.0f}",
        str(run.actions),
    )


def summary(runs: Sequence[Run]) -> str:
    """Markdown: geometric means of each policy, by family and by nodes."""
    head = ["", *(f"{c} {what}" for c in (GPUDASK, ADAPTIVE, FIXED) for what in ("makespan", "GPU-s", "on nodes"))]
    groups: dict[str, list[Run]] = {"all": list(runs)}
    for run in runs:
        groups.setdefault(f"{run.gpus_per_node} GPU a node", []).append(run)
    for run in runs:
        groups.setdefault(run.family, []).append(run)
    return markdown(head, ([name, *_means(group)] for name, group in groups.items()))


def _means(group: Sequence[Run]) -> Iterable[str]:
    ratios: tuple[Ratio, ...] = (_makespan, _gpu_seconds, lambda run: run.node_gpu_seconds_ratio)
    return (f"{_mean(group, policy, ratio):.2f}" for policy in (GPUDASK, ADAPTIVE, FIXED) for ratio in ratios)


def misses(runs: Sequence[Run]) -> list[str]:
    """Each trace on which our policy is above the wanted worst ratio, in words."""
    ours = [run for run in runs if run.policy == GPUDASK]
    found = [(run, "makespan", run.makespan_ratio) for run in ours]
    found += [(run, "GPU-seconds held", run.gpu_seconds_ratio) for run in ours]
    return [f"{run.trace}: {what} {ratio:.2f}x" for run, what, ratio in found if ratio > WANTED_WORST]


def last_line(runs: Sequence[Run]) -> str:
    """One line for whoever reads figures by machine; x is the ratio to the oracle, the mean over traces geometric."""
    ours = [run for run in runs if run.policy == GPUDASK]
    values = {
        "gpu_seconds": _mean(runs, GPUDASK, _gpu_seconds),
        "makespan": _mean(runs, GPUDASK, _makespan),
        "worst_gpu_seconds": max(map(_gpu_seconds, ours)),
        "worst_makespan": max(map(_makespan, ours)),
        "adaptive_gpu_seconds": _mean(runs, ADAPTIVE, _gpu_seconds),
        "fixed_gpu_seconds": _mean(runs, FIXED, _gpu_seconds),
    }
    return one_line("scaling", {name: f"{value:.2f}x" for name, value in values.items()})


def _mean(runs: Iterable[Run], policy: str, ratio: Ratio) -> float:
    return geometric_mean(ratio(run) for run in runs if run.policy == policy)


def _makespan(run: Run) -> float:
    return run.makespan_ratio


def _gpu_seconds(run: Run) -> float:
    return run.gpu_seconds_ratio


def draw(runs: Sequence[Run], path: Path) -> None:
    """Write a PNG."""
    import matplotlib as mpl  # noqa: PLC0415 - a plot alone needs it

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the choice of the backend

    families = list(dict.fromkeys(run.family for run in runs))
    rows = 1 + -(-len(families) // _PLOTS_A_ROW)
    figure = plt.figure(figsize=(12, 3 + 2.2 * rows), layout="constrained")
    grid = figure.add_gridspec(rows, _PLOTS_A_ROW, height_ratios=[2.4, *[1] * (rows - 1)])
    _ratios(figure.add_subplot(grid[0, :]), runs)
    for number, family in enumerate(families):
        axes = figure.add_subplot(grid[1 + number // _PLOTS_A_ROW, number % _PLOTS_A_ROW])
        first = next(run.trace for run in runs if run.family == family)
        _course(axes, [run for run in runs if run.trace == first])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _ratios(axes: Any, runs: Sequence[Run]) -> None:
    for policy, colour in _COLOURS.items():
        mine = [run for run in runs if run.policy == policy]
        xs, ys = [run.makespan_ratio for run in mine], [run.gpu_seconds_ratio for run in mine]
        axes.scatter(xs, ys, s=22, color=colour, label=policy, alpha=0.8)
    axes.axhline(1.0, color="black", linewidth=0.6)
    axes.axvline(1.0, color="black", linewidth=0.6)
    axes.set(yscale="log", xlabel="makespan, times the oracle's", ylabel="GPU-seconds held, times the oracle's")
    axes.legend()


def _course(axes: Any, runs: Sequence[Run]) -> None:
    for run in runs:
        if run.policy == FIXED:
            continue
        times, gpus = zip(*run.gpu_pods, strict=True) if run.gpu_pods else ((0.0,), (0,))
        axes.step(times, gpus, where="post", color=_COLOURS[run.policy], linewidth=1.1)
    axes.set_title(runs[0].trace, fontsize=9)
    axes.set(xlabel="seconds", ylabel="GPUs held")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--seed", type=int, action="append", help=f"again for several; by default {_SEEDS}")
    parser.add_argument("--only", choices=list(FAMILIES), action="append", help="some families of traces only")
    parser.add_argument("--idle-timeout", default=Settings.idle_timeout, help="of all pools; default %(default)s")
    parser.add_argument("--target-duration", default=Settings.target_duration, help="default %(default)s")
    parser.add_argument("--json", type=Path, help="keep all figures in this file")
    parser.add_argument("--plot", type=Path, default=Path("out/scaling.png"), help="default %(default)s")
    return parser.parse_args()


def _runs(traces: Sequence[Trace]) -> list[Run]:
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        return [run for runs in processes.map(measure, traces) for run in runs]


def main() -> None:
    """Run all traces and print what came of it."""
    arguments = _arguments()
    settings = Settings(arguments.idle_timeout, arguments.target_duration)
    seeds = arguments.seed or list(_SEEDS)
    traces = [t for t in all_traces(seeds, settings) if not arguments.only or t.name in arguments.only]
    began = time.perf_counter()
    runs = _runs(traces)
    print(table(runs))
    print()
    print(summary(runs))
    print()
    draw(runs, arguments.plot)
    print(f"{len(traces)} traces in {time.perf_counter() - began:.0f} s; seeds {seeds}; plot: {arguments.plot}")
    for miss in misses(runs):
        print(f"misses: {miss}")
    line = last_line(runs)
    if arguments.json:
        kept = {
            "scaling": line,
            "seeds": seeds,
            "idle_timeout": settings.idle_timeout,
            "target_duration": settings.target_duration,
            "runs": [run.as_json() for run in runs],
        }
        keep(arguments.json, kept)
    print(line)


if __name__ == "__main__":
    main()
