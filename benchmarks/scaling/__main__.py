"""The command: which seeds and settings, the runs, and what is printed and kept."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.scaling import report
from benchmarks.scaling.report import Run, measure
from benchmarks.scaling.trace import FAMILIES, Settings, Trace, all_traces
from benchmarks.testbed.report import keep

_SEEDS = (1, 2, 3)


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
    print(report.table(runs))
    print()
    print(report.summary(runs))
    print()
    report.draw(runs, arguments.plot)
    print(f"{len(traces)} traces in {time.perf_counter() - began:.0f} s; seeds {seeds}; plot: {arguments.plot}")
    for miss in report.misses(runs):
        print(f"misses: {miss}")
    line = report.last_line(runs)
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
