"""The time in which waiting GPU tasks spread over GPU workers that join, and for which that holds the scheduler's loop.

    python -m benchmarks.scale.join [--tasks 100] [--seconds 0.1] [--workers 2,4] [--queued 20000] [--repeats 3]

A scheduler, CPU workers and one GPU worker, which gets all the GPU tasks; then the other GPU workers join.
*ratio*: from the moment when the last of them is there, and tasks are let go on, until the last task has ended, to the
tasks over the workers, each taking exactly its time. The CPU workers are idle, or busy with plain tasks.

*pause*: with `--queued` tasks, the longest pause of a ticker on the scheduler's loop while workers join and for a fixed
time: in wall seconds, and in CPU seconds of the loop's thread, which others on the machine do not lengthen.

With the preload and without it, in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from distributed import wait

from benchmarks.scale.processes import connected, scheduler, until, worker

CPU_WORKERS, CPU_THREADS = 2, 8
GPU = {"GPU": 1}
DEADLINE_SECONDS = 600
WATCH_SECONDS = 10  # of a long queue, from when the others are asked to join
BLOCK_TASK_SECONDS = 0.02
JOINING = 3  # workers that join a long queue


@dataclasses.dataclass(frozen=True)
class Spread:
    """One turn: how long a queue took, to the ideal."""

    preload: bool
    workers: int
    busy: bool
    seconds: float
    ideal_seconds: float

    @property
    def ratio(self) -> float:
        """To the ideal."""
        return self.seconds / self.ideal_seconds


@dataclasses.dataclass(frozen=True)
class Block:
    """One turn: the scheduler's longest pauses, and how the tasks were spread at the end."""

    preload: bool
    queued: int
    wall_seconds: float
    cpu_seconds: float
    done: int


def measure_spread(*, preload: bool, workers: int, busy: bool, tasks: int, seconds: float) -> Spread:
    """Let the other GPU workers join a queue that the first has taken."""
    with _cluster(preload=preload) as (client, join), contextlib.ExitStack() as stack:
        plain = client.map(time.sleep, [0.05] * 20_000 if busy else [], pure=False)
        gate = stack.enter_context(tempfile.TemporaryDirectory()) + "/open"
        futures = client.map(_pass, [gate] * tasks, [seconds] * tasks, resources=GPU, pure=False)
        _until_assigned(client, tasks)
        join(workers - 1)
        Path(gate).touch()
        since = time.monotonic()
        with client.as_current():  # it is nobody's default
            wait(futures, timeout=DEADLINE_SECONDS)  # type: ignore[no-untyped-call]
        took = time.monotonic() - since
        client.cancel(plain)
        return Spread(preload, workers, busy, took, tasks * seconds / workers)


def measure_block(*, preload: bool, queued: int) -> Block:
    """Let workers join a long queue, and listen to the scheduler's loop."""
    with _cluster(preload=preload) as (client, join):
        futures = client.map(time.sleep, [BLOCK_TASK_SECONDS] * queued, resources=GPU, pure=False)
        _until_assigned(client, queued)
        client.run_on_scheduler(_start_ticker)
        join(JOINING)
        time.sleep(WATCH_SECONDS)
        wall_seconds, cpu_seconds = client.run_on_scheduler(_pauses)
        done = sum(future.done() for future in futures)
        client.cancel(futures)
        return Block(preload, queued, wall_seconds, cpu_seconds, done)


@contextlib.contextmanager
def _cluster(*, preload: bool) -> Iterator[tuple[Any, Callable[[int], None]]]:
    """Start everything with one GPU worker; the function that is yielded lets more join and waits for them."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        where = Path(folder) / "scheduler.json"
        stack.enter_context(scheduler(Path(folder), where, preload=preload))
        for i in range(CPU_WORKERS):
            stack.enter_context(worker(where, f"cpu-worker-{i}", threads=CPU_THREADS))
        stack.enter_context(worker(where, "gpu-worker-0", threads=1))
        client = stack.enter_context(connected(where))
        client.wait_for_workers(CPU_WORKERS + 1, timeout=120)

        def join(n: int) -> None:
            for i in range(1, n + 1):
                stack.enter_context(worker(where, f"gpu-worker-{i}", threads=1))
            client.wait_for_workers(CPU_WORKERS + 1 + n, timeout=120)

        yield client, join


def _pass(gate: str, seconds: float) -> None:
    while not os.path.exists(gate):  # noqa: PTH110 (it runs on a worker, which should import nothing for it)
        time.sleep(0.002)
    time.sleep(seconds)


def _until_assigned(client: Any, tasks: int) -> None:
    what = "all tasks are given to the first worker"
    until(lambda: client.run_on_scheduler(_assigned) >= tasks, what, seconds=DEADLINE_SECONDS)


def _assigned(dask_scheduler: Any) -> int:
    return sum(ts.state in ("processing", "memory") for ts in dask_scheduler.tasks.values() if ts.resource_restrictions)


def _start_ticker(dask_scheduler: Any) -> None:
    pauses = dask_scheduler.benchmark_pauses = [0.0, 0.0]

    async def tick() -> None:
        while True:
            wall, cpu = time.monotonic(), time.thread_time()
            await asyncio.sleep(0.001)
            pauses[:] = max(pauses[0], time.monotonic() - wall), max(pauses[1], time.thread_time() - cpu)

    dask_scheduler.benchmark_ticker = asyncio.get_running_loop().create_task(tick())


def _pauses(dask_scheduler: Any) -> list[float]:
    dask_scheduler.benchmark_ticker.cancel()
    pauses: list[float] = dask_scheduler.benchmark_pauses
    return pauses


def describe(turns: Sequence[Spread], blocks: Sequence[Block]) -> str:
    """Return the figures in a line each, medians first."""
    lines = []
    for key in sorted({(turn.workers, turn.busy, turn.preload) for turn in turns}):
        workers, busy, preload = key
        ratios = [turn.ratio for turn in turns if (turn.workers, turn.busy, turn.preload) == key]
        lines.append(
            f"{workers} GPU workers beside {'busy' if busy else 'idle'} CPU workers, {_with(preload=preload)}:"
            f" {statistics.median(ratios):.2f}x the ideal ({min(ratios):.2f}-{max(ratios):.2f}, n={len(ratios)})"
        )
    for preload in (False, True):
        some = [block for block in blocks if block.preload == preload]
        if some:
            lines.append(
                f"{some[0].queued} queued tasks, {_with(preload=preload)}: longest pause"
                f" {max(block.wall_seconds for block in some):.3f} s,"
                f" of CPU {max(block.cpu_seconds for block in some):.3f} s;"
                f" {statistics.median(block.done for block in some):.0f} tasks done"
            )
    return "\n".join(lines)


def _with(*, preload: bool) -> str:
    return "with the preload" if preload else "without it"


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description="how waiting GPU tasks spread over workers that join")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a task")
    parser.add_argument("--workers", default="2,4")
    parser.add_argument("--queued", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="keep all turns in this file")
    given = parser.parse_args()
    turns: list[Spread] = []
    blocks: list[Block] = []
    for _ in range(given.repeats):
        for preload in (False, True):
            for workers in map(int, given.workers.split(",")):
                for busy in (False, True):
                    turns.append(
                        measure_spread(
                            preload=preload, workers=workers, busy=busy, tasks=given.tasks, seconds=given.seconds
                        )
                    )
                    print(describe(turns[-1:], ()), flush=True)
            blocks.append(measure_block(preload=preload, queued=given.queued))
            print(describe((), blocks[-1:]), flush=True)
    print(describe(turns, blocks))
    if given.json:
        kept = [dataclasses.asdict(turn) for turn in turns] + [dataclasses.asdict(block) for block in blocks]
        given.json.write_text(json.dumps(kept, indent=2))
    ours = [turn.ratio for turn in turns if turn.preload]
    pauses = [block.cpu_seconds for block in blocks if block.preload]
    print(f"join: worst_ratio={max(ours):.2f}x longest_pause={max(pauses):.3f}s")


if __name__ == "__main__":
    main()
