"""The preload's cost for a real scheduler: its tasks a second and its memory, with the preload and without.

    python -m benchmarks.scale.preload [--tasks 100000] [--batches 400] [--only plain] [--collector] [--json FILE]

Two schedulers, one with and one without, run at the same time, each with real workers and a client over TCP. They get
the same batches of empty tasks, one after the other in the order ABBA, and keep all results until the end, so that the
last batch meets a scheduler that holds `--tasks` tasks. Then all are let go at once. A batch is compared with its
neighbour: what else happens on the machine meets both.

The figure is the ratio of tasks per second *of the scheduler process's CPU time*: on a machine with few or shared
cores the workers and the client, not the scheduler, bound the wall clock. Wall-clock ratios are printed beside it.

Both sides have the same processes, names and resources; only the scheduler's flag differs. With the preload, somebody
also holds the long poll and reads every answer, as the operator does.

On both sides the same two workers do the tasks. The third, of the other pool, stands by. Tasks that ask for a GPU never
go to a CPU worker. With plain tasks it is the GPU worker: with the preload the fence keeps them off it, and without the
preload it is paused. Otherwise the side without would have half as much room again, and with more of its tasks on their
way at any time more of them come in one message: that alone makes a task 10 to 15 % cheaper for its scheduler, whatever
runs in there.

Python's garbage collector is off in both schedulers, unless it is asked for. A full collection takes as long as
thousands of tasks, and which batch it falls into is chance: with it the same run's standard error is four times as
large. The preload keeps next to nothing for each task that a collection would have to look at (`memory` says so).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import http.client
import json
import math
import operator
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from distributed import Future, wait
from distributed.core import Status

from benchmarks.scale.processes import TOKEN, connected, scheduler, until, worker

THREADS = 4  # of a worker; a GPU worker offers as many GPUs, so that both kinds of tasks have the same room
WORKERS = 2  # that do the work; one of the other pool stands by, so that the fence has something to keep apart
DEADLINE_SECONDS = 300
POLL_SECONDS = 30
KINDS = ("plain", "restricted")
WARM_UP_TASKS = 1000


@dataclass(frozen=True)
class Took:
    """The time and memory of some tasks."""

    tasks: int
    wall_seconds: float
    cpu_seconds: float  # of the scheduler's process


class Side:
    """A running scheduler with its workers, and a client that holds all results until it lets them go."""

    def __init__(self, client: Any, process: psutil.Process, kind: str, polls: list[int]) -> None:
        self.client = client
        self._process = process
        self._resources = {"GPU": 1} if kind == "restricted" else None
        self._held: list[Future[Any]] = []
        self._memory_before = 0
        self.polls = polls

    def do(self, tasks: int) -> Took:
        """Do so many tasks more, from the graph until all results are there."""
        with self.client.as_current(), self._timed(tasks) as took:
            futures = self.client.map(operator.truth, range(tasks), pure=False, resources=self._resources)
            wait(futures, timeout=DEADLINE_SECONDS)  # type: ignore[no-untyped-call]
        self._held += futures
        return took[0]

    def let_go(self) -> Took:
        """Let go of all results, as a program that drops its futures does, until the scheduler has forgotten the tasks.

        Not by `Client.cancel`: of many keys at once, distributed's takes time with the square of their number.
        """
        tasks = len(self._held)
        with self._timed(tasks) as took:
            self._held.clear()
            forgotten = f"the scheduler forgets {tasks} tasks"
            until(lambda: not self.client.run_on_scheduler(_count_tasks), forgotten, seconds=DEADLINE_SECONDS)
        self._memory_before = self._process.memory_info().rss
        return took[0]

    def held_mb(self) -> float:
        """Return the resident memory, in MB, that the scheduler's process has gained since nothing was held."""
        return float((self._process.memory_info().rss - self._memory_before) / 1e6)

    def resident_mb(self) -> float:
        """Return the resident memory of the scheduler's process, in MB."""
        return float(self._process.memory_info().rss / 1e6)

    @contextlib.contextmanager
    def _timed(self, tasks: int) -> Iterator[list[Took]]:
        took: list[Took] = []
        started, cpu_before = time.monotonic(), _cpu_seconds(self._process)
        yield took
        took.append(Took(tasks, time.monotonic() - started, _cpu_seconds(self._process) - cpu_before))


@contextlib.contextmanager
def running(kind: str, *, preload: bool, collector: bool) -> Iterator[Side]:
    """Start one side for `plain` or `restricted` tasks, and end all of it. `collector`: as the scheduler has it."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        where = Path(folder) / "scheduler.json"
        process = psutil.Process(stack.enter_context(scheduler(Path(folder), where, preload=preload)).pid)
        pool, other = ("gpu", "cpu") if kind == "restricted" else ("cpu", "gpu")
        for name in [*(f"{pool}-worker-{i}" for i in range(WORKERS)), f"{other}-worker-9"]:
            stack.enter_context(worker(where, name, threads=THREADS))
        client = stack.enter_context(connected(where))
        client.wait_for_workers(WORKERS + 1, timeout=60)
        if not preload and kind == "plain":
            _pause(client, f"bench-{other}-worker-9-00000")
        if not collector:
            client.run_on_scheduler(_stop_collector)
        polls = stack.enter_context(_poll(client)) if preload else [0]
        yield Side(client, process, kind, polls)


def _pause(client: Any, name: str) -> None:
    """Keep a worker from being given tasks, as far as the scheduler knows."""
    client.run(_pause_here, name=name)
    paused = f"{name} is paused"
    until(lambda: client.run_on_scheduler(_status_of, name=name) == "paused", paused, seconds=DEADLINE_SECONDS)


def _pause_here(dask_worker: Any, name: str) -> None:
    if dask_worker.name == name:
        dask_worker.status = Status.paused


def _status_of(dask_scheduler: Any, name: str) -> str:
    return str(next(ws.status.name for ws in dask_scheduler.workers.values() if ws.name == name))


def _stop_collector() -> None:
    gc.collect()
    gc.freeze()
    gc.disable()


def _count_tasks(dask_scheduler: Any) -> int:
    return len(dask_scheduler.tasks)


def _cpu_seconds(process: psutil.Process) -> float:
    """CPU seconds of all threads, to the nanosecond; psutil's come in ticks of 10 ms, too coarse for a small batch."""
    threads = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


@contextlib.contextmanager
def _poll(client: Any) -> Iterator[list[int]]:
    """Hold the long poll in a thread of its own, for as long as the operator does, and count the answers."""
    port = client.scheduler_info()["services"]["dashboard"]
    answers = [0]
    ended = threading.Event()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask() -> None:
        seen = ""
        while not ended.is_set():
            path = f"/gpudask/v1/demand?seen={seen}&wait={POLL_SECONDS}"
            try:
                connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
                seen = json.loads(connection.getresponse().read())["version"]
            except (OSError, http.client.HTTPException):
                if ended.is_set():
                    return  # the scheduler ended while it had nothing to say
                raise
            answers[0] += 1

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield answers
    finally:
        ended.set()


@dataclass(frozen=True)
class Pair:
    """The same batch on both sides."""

    bare: Took
    preload: Took


@dataclass(frozen=True)
class Cost:
    """The cost of one kind of tasks: ratios are the scheduler with the preload to the one without."""

    kind: str
    batches: tuple[Pair, ...]
    letting_go: Pair
    bare_mb: float  # resident memory gained by holding all tasks
    preload_mb: float
    polls: int

    @property
    def rate(self) -> float:
        """Tasks per CPU second of the scheduler, over a task's whole life."""
        return self._ratio(lambda took: took.cpu_seconds)

    @property
    def wall_rate(self) -> float:
        """Tasks per second, over a task's whole life."""
        return self._ratio(lambda took: took.wall_seconds)

    @property
    def median_rate(self) -> float:
        """The median of the batches' own ratios of CPU time: an outlier does not move it."""
        return statistics.median(pair.bare.cpu_seconds / pair.preload.cpu_seconds for pair in self.batches)

    @property
    def error(self) -> float:
        """The standard error of the batches' mean ratio: how far off chance may be."""
        ratios = [pair.bare.cpu_seconds / pair.preload.cpu_seconds for pair in self.batches]
        return statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.inf

    @property
    def memory(self) -> float:
        """Memory for all held tasks."""
        return self.preload_mb / self.bare_mb

    def _ratio(self, of: Callable[[Took], float]) -> float:
        pairs = [*self.batches, self.letting_go]
        return sum(of(pair.bare) for pair in pairs) / sum(of(pair.preload) for pair in pairs)


def measure(
    tasks: int,
    batches: int,
    kinds: Iterable[str] = KINDS,
    tell: Callable[[str], None] = print,
    *,
    collector: bool = False,
) -> tuple[Cost, ...]:
    """Return one cost a kind, and tell of each. `collector`: with Python's garbage collector in the schedulers."""
    costs = []
    for kind in kinds:
        cost = _measure(kind, tasks, batches, collector=collector)
        tell(describe(cost))
        costs.append(cost)
    return tuple(costs)


def worst_rate(costs: Iterable[Cost]) -> float:
    """Return the figure of the last line: the rate of the kind of tasks that the preload slows the most."""
    return min(cost.rate for cost in costs)


def _measure(kind: str, tasks: int, batches: int, *, collector: bool) -> Cost:
    with (
        running(kind, preload=False, collector=collector) as bare,
        running(kind, preload=True, collector=collector) as ours,
    ):
        sides = (bare, ours)
        for side in sides:
            side.do(WARM_UP_TASKS)
            side.let_go()
        ours.polls[0] = 0
        pairs = tuple(_pair(sides, lambda side: side.do(tasks // batches), i) for i in range(batches))
        bare_mb, preload_mb = bare.held_mb(), ours.held_mb()
        letting_go = _pair(sides, lambda side: side.let_go(), 0)
        return Cost(kind, pairs, letting_go, bare_mb, preload_mb, polls=ours.polls[0])


def _pair(sides: Sequence[Side], act: Callable[[Side], Took], turn: int) -> Pair:
    if turn % 2:
        preload = act(sides[1])
        return Pair(act(sides[0]), preload)
    bare = act(sides[0])
    return Pair(bare, act(sides[1]))


def describe(cost: Cost) -> str:
    """Return a kind's figures in a few lines."""
    pairs = [*cost.batches, cost.letting_go]
    tasks = sum(pair.bare.tasks for pair in cost.batches)
    lines = [f"{cost.kind}: {tasks} tasks in {len(cost.batches)} batches; {cost.polls} long polls were answered"]
    for name, tooks, megabytes in (
        ("without", [pair.bare for pair in pairs], cost.bare_mb),
        ("with", [pair.preload for pair in pairs], cost.preload_mb),
    ):
        cpu, wall = (sum(getattr(took, field) for took in tooks) for field in ("cpu_seconds", "wall_seconds"))
        rates = f"{tasks / cpu:.0f} tasks per CPU second of the scheduler, {tasks / wall:.0f} tasks/s"
        lines.append(f"  {name:8}{rates}, {cpu * 1e6 / tasks:.0f} us of CPU a task, {megabytes:.0f} MB for all")
    lines.append(
        f"  rate={cost.rate:.3f}x (standard error {cost.error:.3f}, median of batches {cost.median_rate:.3f}x)"
        f" wall_rate={cost.wall_rate:.3f}x memory={cost.memory:.3f}x"
    )
    return "\n".join(lines)


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description="what the preload costs a real scheduler")
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--only", choices=KINDS, action="append")
    parser.add_argument("--collector", action="store_true", help="leave the schedulers' garbage collector on")
    parser.add_argument("--json", type=Path, help="keep all batches in this file")
    given = parser.parse_args()
    costs = measure(given.tasks, given.batches, given.only or KINDS, collector=given.collector)
    if given.json:
        given.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=2))
    print(f"preload: preload_rate={worst_rate(costs):.3f}x")


if __name__ == "__main__":
    main()
