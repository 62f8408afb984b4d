"""The file that keeps figures; them in words: a table for each measurement, on what, and the last line; and the plot.

Each call adds its measurements to the file, so that several calls make one table.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu import figures as f
from benchmarks.gpu.figures import Json
from benchmarks.gpu.runner import BenchmarkError
from benchmarks.testbed.report import NOT_MEASURED, Sample, checkout, keep, machine, markdown, now, one_line, with_unit

_QUERY = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
_TOPOLOGY = ("nvidia-smi", "topo", "-m")
_LINK = re.compile(r"\b(?:NV\d+|PIX|PXB|PHB|NODE|SYS)\b")
_ONE_POD, _TWO_PODS = "one pod", "two pods"
_WHOLE = "whole"


def read(path: Path) -> list[Json]:
    """All that was measured; nothing where there is no file."""
    return list(json.loads(path.read_text())["measured"]) if path.exists() else []


def add(path: Path, name: str, figures: Json, *, gpus: int) -> None:
    """Add one measurement, with when, where and of which commit.

    Raises:
        BenchmarkError: the file is of another machine: figures of both would make no table.
    """
    before = read(path)
    record = {
        "measurement": name,
        "at": now(),
        "hardware": hardware(gpus),
        **checkout(),
        "figures": figures,
    }
    if before and before[0]["hardware"]["gpus"] != record["hardware"]["gpus"]:
        theirs = before[0]["hardware"]["gpus"]
        raise BenchmarkError(f"{path} has figures of other GPUs, {theirs}: name another file with --json")
    fresh = path.with_suffix(".new")
    keep(fresh, {"measured": [*before, record]})
    fresh.replace(path)


def hardware(gpus: int) -> Json:
    """This machine and its GPUs, as its driver names them; `gpus` as Kubernetes counts them."""
    names = [line.strip() for line in _said(_QUERY).splitlines() if line.strip()]
    return {"gpus": {"count": gpus, "names": names}, "topology": _said(_TOPOLOGY), **machine()}


def _said(command: tuple[str, ...]) -> str:
    """What the driver's program says; empty where there is none."""
    if not shutil.which(command[0]):
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def summary(records: Sequence[Json]) -> str:
    """All of it: hardware and versions, the tables, what failed, and the last line."""
    parts = [_where(records), _shapes(records, "classic"), _cpus(records), _shapes(records, "scaling")]
    parts += [_overhead(records), _first(records, "first", "first GPU task until its result, from no GPU pod")]
    parts += [_first(records, "first_result", "the same by launcher, in turn")]
    parts += [_pipeline(records), _uneven(records), _retirement(records), _transfer(records)]
    parts += [_errors(records), last_line(records)]
    return "\n\n".join(part for part in parts if part) + "\n"


def last_line(records: Sequence[Json]) -> str:
    """One line for whoever reads figures by machine."""
    classic, scaling = f.figures_of(records, "classic"), f.figures_of(records, "scaling")
    launchers = f.first_steps(f.figures_of(records, "first_result"))
    plain = f.first_steps(f.figures_of(records, "first")).get("plain")
    first, nanny = launchers.get(f.ONE_PROCESS, plain), launchers.get(f.NANNY)
    pipeline, transfer = f.figures_of(records, "pipeline"), f.figures_of(records, "transfer")
    values = {
        "overhead": with_unit(f.overheads(f.figures_of(records, "overhead")).get("all"), "x", 3),
        "scale_2": with_unit(f.worst_speedup(scaling, 2), "x"),
        "scale_4": with_unit(f.worst_speedup(scaling, 4), "x"),
        "classic_4gpu": with_unit(f.times_one_thread(classic, f.LARGE, 4), "x_one_thread", 0),
        "first_result": with_unit(first["whole"].median if first else None, "s"),
        "first_result_nanny": with_unit(nanny["whole"].median if nanny else None, "s"),
        "pipeline_gpu_seconds": with_unit(f.pipeline_ratio(pipeline, "gpu_seconds"), "x"),
        "pipeline_makespan": with_unit(f.pipeline_ratio(pipeline, "seconds"), "x"),
        "uneven_used": with_unit(f.uneven_share(f.figures_of(records, "uneven")), "x"),
        "nvlink": with_unit(f.rate(transfer, _ONE_POD, direct=True), "GB/s", 1),
        "tcp": with_unit(f.rate(transfer, _TWO_PODS, direct=False), "GB/s"),
    }
    return one_line("gpu", values)


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return f"## {title}\n{markdown(head, rows)}" if rows else ""


def _where(records: Sequence[Json]) -> str:
    """Of the last record: all are of one machine."""
    if not records:
        return "Nothing was measured."
    last = records[-1]
    hardware = last["hardware"]
    gpus = hardware["gpus"]
    links = ", ".join(sorted(_links(hardware.get("topology", ""))))
    versions: dict[str, str] = {}
    for record in records:
        versions |= record["figures"].get("versions", {})
    commits = sorted({record["checkout"] + (" (edited)" if record["checkout-edited"] else "") for record in records})
    return "\n".join(
        [
            f"GPUs: {gpus['count']}; {'; '.join(sorted(set(gpus['names']))) or 'the driver does not say which'}",
            f"Machine: {hardware['cores']} cores, {hardware['memory_gib']} GiB, kernel {hardware['kernel']}",
            f"Versions: {', '.join(f'{name} {version}' for name, version in sorted(versions.items())) or NOT_MEASURED}",
            f"Measured: {records[0]['at']} to {last['at']}; operator of commit {', '.join(commits)}",
            f"Links between GPUs, as nvidia-smi topo -m has them: {links or NOT_MEASURED}",
            "Each cell: median (least-most), n.",
        ]
    )


def _links(topology: str) -> set[str]:
    """The kinds of links in the rows of GPUs, not in the legend below them."""
    rows = [line for line in topology.splitlines() if line.startswith("GPU")]
    return {link for row in rows for link in _LINK.findall(row)}


def _shapes(records: Sequence[Json], name: str) -> str:
    measured = f.figures_of(records, name)
    rows = [row for figures in measured for row in figures["rows"]]
    lines = []
    for (shape, note, tasks, gpus), sample in f.samples(rows, "shape", "note", "tasks", "gpus").items():
        cells = [shape, str(gpus), sample.text(digits=3), with_unit(f.speedups(measured, shape).get(gpus), "x")]
        if name == "classic":
            generators = ("default_rng", "RandomState")
            cells += [with_unit(f.times_one_thread(measured, shape, gpus, made_by), "x", 0) for made_by in generators]
        lines.append([*cells, f"{tasks} tasks, {note}"])
    compared = ["times one thread", "times one thread, RandomState"] if name == "classic" else []
    return _table(name, ["shape", "GPUs", "seconds", "times one GPU", *compared, "tasks"], lines)


def _cpus(records: Sequence[Json]) -> str:
    rows = [row for figures in f.figures_of(records, "classic") for row in figures["cpu_rows"]]
    lines = []
    for shape in ("classic 80 GB", f.LARGE):
        for one_thread in (True, False):
            for (threads, chunk, generator), sample in f.cpu_seconds(rows, shape, one_thread=one_thread).items():
                whole = {
                    row["measured_bytes"] for row in rows if (row["threads"], row["chunk_bytes"]) == (threads, chunk)
                }
                who = "one thread" if one_thread else f"{threads} processes"
                measured = ", ".join(f"{nbytes / 1e9:.1f} GB" for nbytes in sorted(whole))
                lines.append([shape, who, f"{chunk / 1e6:.0f} MB", generator, sample.text(), measured])
    return _table("classic on CPUs", ["shape", "who", "chunks", "generator", "seconds", "extrapolated from"], lines)


def _overhead(records: Sequence[Json]) -> str:
    measured = f.figures_of(records, "overhead")
    ours, theirs = (f.samples((row for m in measured for row in m[who]), "shape") for who in ("operator", "local"))
    ratios = f.overheads(measured)
    lines = [
        [shape, sample.text(digits=3), theirs[(shape,)].text(digits=3), with_unit(ratios[shape], "x", 3)]
        for (shape,), sample in ours.items()
        if (shape,) in theirs
    ]
    lines += [["all, sums of medians", "", "", with_unit(ratios["all"], "x", 3)]] if lines else []
    return _table("overhead", ["shape, all GPUs", "operator", "LocalCUDACluster", "ratio"], lines)


def _first(records: Sequence[Json], measurement: str, title: str) -> str:
    variants = f.first_steps(f.figures_of(records, measurement))
    steps = list(next(iter(variants.values()), {}))
    lines = [[step, *(mine[step].text() for mine in variants.values())] for step in steps]
    return _table(title, ["step", *variants], lines)


def _pipeline(records: Sequence[Json]) -> str:
    measured = f.figures_of(records, "pipeline")
    lines = []
    for figure, words, unit in (
        ("seconds", "makespan", " s"),
        ("gpu_seconds", "GPU-seconds held, from pods' lifetimes", ""),
        ("status_gpu_seconds", "GPU-seconds held since the cluster began, by its status", ""),
    ):
        both = [
            Sample(tuple(row[figure] for figures in measured for row in figures[who]))
            for who in ("fixed", "autoscaled")
            if measured
        ]
        if both:
            lines.append([words, *(sample.text(unit, 1) for sample in both), _ratio(measured, figure)])
    sorts = [str(run["sorts"]) for figures in measured for run in figures["autoscaled"] if "sorts" in run]
    if sorts:
        lines.append(["sorts of a load, and of a summary", ", ".join(sorts), "as many", ""])
    whole = _table("pipeline", ["", "fixed at maximum", "autoscaled", "ratio"], lines)
    return "\n\n".join(part for part in (whole, _phases(measured)) if part)


def _phases(measured: Sequence[Json]) -> str:
    """Of the last run: where the time went."""
    lines = [
        [who, row["kind"], f"{row['began']:.1f}-{row['ended']:.1f} s", *_work(row)]
        for who in ("fixed", "autoscaled")
        for run in (measured[-1][who][-1:] if measured else [])
        for row in run.get("phases", [])
    ]
    head = ["pool", "tasks", "from the first to the last", "computing, all workers", "waiting for inputs", "by worker"]
    return _table("pipeline, the last run's phases", head, lines)


def _work(row: Json) -> list[str]:
    return [f"{row['compute']:.1f} s", f"{row['transfer']:.1f} s", " + ".join(map(str, row["tasks"]))]


def _ratio(measured: Sequence[Json], figure: str) -> str:
    """Not of what the status counts: that begins with the cluster, not with the program."""
    return "" if figure.startswith("status") else with_unit(f.pipeline_ratio(measured, figure), "x")


def _uneven(records: Sequence[Json]) -> str:
    runs = [run for figures in f.figures_of(records, "uneven") for run in figures["runs"]]
    if not runs:
        return ""
    causes = dict.fromkeys(cause for run in runs for cause in run["causes"])
    figures = [
        ("makespan", [run["seconds"] for run in runs], " s"),
        ("all tasks", [run["task_seconds"] for run in runs], " s"),
        ("the longest task", [run["longest_task"] for run in runs], " s"),
        ("GPU-seconds held, from pods' lifetimes", [run["pod_seconds"] for run in runs], ""),
        ("GPU-seconds held, by its status", [run["held"] for run in runs], ""),
        *((f"of these {cause}", [run["causes"].get(cause, 0.0) for run in runs], "") for cause in causes),
        ("used of held", [run["used"] / run["held"] for run in runs], "x"),
    ]
    lines = [[what, Sample(tuple(values)).text(unit)] for what, values, unit in figures]
    return _table("uneven tasks on a pool from zero", ["", ""], lines)


def _retirement(records: Sequence[Json]) -> str:
    runs = [run for figures in f.figures_of(records, "retirement") for run in figures["runs"]]
    if not runs:
        return ""
    lines = [
        ["asked until its pod is deleted", Sample(tuple(run["deleted_seconds"] for run in runs)).text()],
        ["asked until its pod is gone", Sample(tuple(run["gone_seconds"] for run in runs)).text()],
        ["GB that lay on its GPU", Sample(tuple(run["bytes"] / 1e9 for run in runs)).text("")],
        ["times that all results were intact", f"{sum(run['intact'] for run in runs)} of {len(runs)}"],
        ["times that all were on GPU workers", f"{sum(run['on_gpu_workers'] for run in runs)} of {len(runs)}"],
    ]
    return _table("retirement of a GPU worker", ["", ""], lines)


def _transfer(records: Sequence[Json]) -> str:
    measured = f.figures_of(records, "transfer")
    empty = f.delays(measured)
    lines = [
        [*way[:2], f"{way[2] / 1e9:.1f} GB", sample.text(" GB/s"), empty[way].text(" s", 4) if way in empty else ""]
        for way, sample in f.rates(measured).items()
    ]
    rows = [row for figures in measured[-1:] for row in figures["rows"] if row.get("transports")]
    may = [f"- UCX's active transports, {row['where']}: {', '.join(row['transports'])}" for row in rows]
    whole = _table("from one GPU to another", ["where", "how", "array", "rate", "the same with 8 bytes"], lines)
    return "\n\n".join(part for part in (whole, "\n".join(may)) if part)


def _errors(records: Sequence[Json]) -> str:
    said = [
        f"- {record['measurement']}: {error}" for record in records for error in record["figures"].get("errors", [])
    ]
    return "\n".join(["## What could not be measured", *said]) if said else ""


def draw(records: Sequence[Json], path: Path) -> None:
    """Write a PNG; what was not measured stays empty.

    Raises:
        ImportError: there is no matplotlib.
    """
    import matplotlib as mpl  # noqa: PLC0415 - a machine without it measures all the same

    mpl.use("Agg")
    from matplotlib.figure import Figure  # noqa: PLC0415 - after the choice of the backend

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
