"""Ratios in words: geometric means, the table and the last line. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from benchmarks.scaling.figures import Run
from benchmarks.scaling.oracle import geometric_mean

GPUDASK, ADAPTIVE, FIXED = "gpudask", "adaptive", "fixed"
WANTED_WORST = 1.5

Ratio = Callable[[Run], float]
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


def table(runs: Sequence[Run]) -> str:
    """Markdown: the oracle's figures of each trace, then every contestant's with ratios to it."""
    lines = [_COLUMNS, ("---",) * len(_COLUMNS)]
    for trace in dict.fromkeys(run.trace for run in runs):
        of_trace = [run for run in runs if run.trace == trace]
        lines.append(_oracle_row(of_trace[0]))
        lines += [_row(run) for run in of_trace]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _oracle_row(first: Run) -> tuple[str, ...]:
    """The oracle's figures: GPU-seconds for the service of the first contestant."""
    held, used = f"{first.least_gpu_seconds:.0f}", f"{first.gpu_seconds_used:.0f}"
    return (first.trace, "oracle", f"{first.least_makespan:.0f}", "", "", held, "", "", used, "")


def _row(run: Run) -> tuple[str, ...]:
    return (
        "",
        run.contestant,
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
    """Markdown: geometric means of each contestant, by family and by nodes."""
    lines = [["", *(f"{c} {what}" for c in (GPUDASK, ADAPTIVE, FIXED) for what in ("makespan", "GPU-s", "on nodes"))]]
    lines.append(["---"] * len(lines[0]))
    groups: dict[str, list[Run]] = {"all": list(runs)}
    for run in runs:
        groups.setdefault(f"{run.gpus_per_node} GPU a node", []).append(run)
    for run in runs:
        groups.setdefault(run.family, []).append(run)
    for name, group in groups.items():
        lines.append([name, *_means(group)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _means(group: Sequence[Run]) -> Iterable[str]:
    ratios: tuple[Ratio, ...] = (_makespan, _gpu_seconds, lambda run: run.node_gpu_seconds_ratio)
    return (f"{_mean(group, contestant, ratio):.2f}" for contestant in (GPUDASK, ADAPTIVE, FIXED) for ratio in ratios)


def misses(runs: Sequence[Run]) -> list[str]:
    """Each trace on which our policy is above the wanted worst ratio, in words."""
    ours = [run for run in runs if run.contestant == GPUDASK]
    found = [(run, "makespan", run.makespan_ratio) for run in ours]
    found += [(run, "GPU-seconds held", run.gpu_seconds_ratio) for run in ours]
    return [f"{run.trace}: {what} {ratio:.2f}x" for run, what, ratio in found if ratio > WANTED_WORST]


def last_line(runs: Sequence[Run]) -> str:
    """One line for whoever reads figures by machine; x is the ratio to the oracle, the mean over traces geometric."""
    ours = [run for run in runs if run.contestant == GPUDASK]
    values = {
        "gpu_seconds": _mean(runs, GPUDASK, _gpu_seconds),
        "makespan": _mean(runs, GPUDASK, _makespan),
        "worst_gpu_seconds": max(map(_gpu_seconds, ours)),
        "worst_makespan": max(map(_makespan, ours)),
        "adaptive_gpu_seconds": _mean(runs, ADAPTIVE, _gpu_seconds),
        "fixed_gpu_seconds": _mean(runs, FIXED, _gpu_seconds),
    }
    return "scaling: " + " ".join(f"{name}={value:.2f}x" for name, value in values.items())


def _mean(runs: Iterable[Run], contestant: str, ratio: Ratio) -> float:
    return geometric_mean(ratio(run) for run in runs if run.contestant == contestant)


def _makespan(run: Run) -> float:
    return run.makespan_ratio


def _gpu_seconds(run: Run) -> float:
    return run.gpu_seconds_ratio
