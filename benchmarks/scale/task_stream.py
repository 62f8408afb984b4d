"""What a task stream costs a real scheduler: tasks a second of its CPU time, with the stream and without, and memory.

    python -m benchmarks.scale.task_stream [--batches 40] [--tasks 2000]

One scheduler with the preload and two workers gets batches of empty tasks. Before each batch the stream is switched on
or off, as the preload does it for `spec.history.performanceReport`, in the order ABBA; a batch is compared with its
neighbour, and the results are let go after each. As in `benchmarks.scale.preload`, the scheduler's own CPU time counts.
"""

from __future__ import annotations

import argparse
import math
import statistics
from typing import Any

from benchmarks.scale.preload import WARM_UP_TASKS, Side, running
from gpudask.preload.performance_report import TASKS

_ON_FIRST = (True, False, False, True)


def main() -> None:
    """Measure, and print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=40, help="pairs of batches; an even number")
    parser.add_argument("--tasks", type=int, default=2000, help="of each batch")
    parser.add_argument("--kept", type=int, default=20_000, help="tasks in the stream whose memory is measured")
    arguments = parser.parse_args()
    with running("plain", preload=True, collector=False) as side:
        side.do(WARM_UP_TASKS)
        side.let_go()
        rates = {wanted: list[float]() for wanted in (True, False)}
        for number in range(2 * arguments.batches):
            wanted = _ON_FIRST[number % len(_ON_FIRST)]
            _switch(side, wanted=wanted)
            took = side.do(arguments.tasks)
            rates[wanted].append(took.tasks / took.cpu_seconds)
            side.let_go()
        before = side.resident_mb()
        _switch(side, wanted=True)
        for _ in range(max(1, arguments.kept // arguments.tasks)):
            side.do(arguments.tasks)
            side.let_go()
        kept = side.resident_mb() - before
    ratios = [on / off for on, off in zip(rates[True], rates[False], strict=True)]
    error = statistics.stdev(ratios) / math.sqrt(len(ratios))
    on, off = (statistics.median(rates[wanted]) for wanted in (True, False))
    print(f"with {on:.0f}, without {off:.0f} tasks/s of CPU: {statistics.mean(ratios):.3f} +- {error:.3f} of it")
    print(f"{arguments.kept} tasks in the stream: {kept:.0f} MB more")


def _switch(side: Side, *, wanted: bool) -> None:
    side.client.run_on_scheduler(_keep_stream, wanted=wanted, maxlen=TASKS)


def _keep_stream(dask_scheduler: Any, wanted: bool, maxlen: int) -> None:
    from distributed.diagnostics.task_stream import TaskStreamPlugin  # noqa: PLC0415 - runs in the scheduler

    is_on = TaskStreamPlugin.name in dask_scheduler.plugins
    if wanted and not is_on:
        stream: Any = TaskStreamPlugin
        dask_scheduler.add_plugin(stream(dask_scheduler, maxlen=maxlen))
    elif is_on and not wanted:
        dask_scheduler.remove_plugin(name=TaskStreamPlugin.name)


if __name__ == "__main__":
    main()
