"""One side of the preload's benchmark: a real scheduler and real workers, each a process, that do empty tasks.

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

import contextlib
import gc
import http.client
import json
import operator
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from distributed import Client, Future, wait
from distributed.core import Status

from benchmarks.scale.processes import TOKEN, scheduler, worker

THREADS = 4  # of a worker; a GPU worker offers as many GPUs, so that both kinds of tasks have the same room
WORKERS = 2  # that do the work; one of the other pool stands by, so that the fence has something to keep apart
DEADLINE_SECONDS = 300
POLL_SECONDS = 30


@dataclass(frozen=True)
class Took:
    """What some tasks took."""

    tasks: int
    wall_seconds: float
    cpu_seconds: float  # of the scheduler's process


class Side:
    """A running scheduler with its workers, and a client that holds all results until it lets them go."""

    def __init__(self, client: Any, process: psutil.Process, kind: str, polls: list[int]) -> None:
        self._client = client
        self._process = process
        self._resources = {"GPU": 1} if kind == "restricted" else None
        self._held: list[Future[Any]] = []
        self._memory_before = 0
        self.polls = polls

    def do(self, tasks: int) -> Took:
        """Do so many tasks more, from the graph until all results are there."""
        with self._client.as_current(), self._timed(tasks) as took:
            futures = self._client.map(operator.truth, range(tasks), pure=False, resources=self._resources)
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
            deadline = time.monotonic() + DEADLINE_SECONDS
            while self._client.run_on_scheduler(_count_tasks):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the scheduler did not forget {tasks} tasks within {DEADLINE_SECONDS} s")
                time.sleep(0.05)
        self._memory_before = self._process.memory_info().rss
        return took[0]

    def held_mb(self) -> float:
        """Return the resident memory, in MB, that the scheduler's process has gained since nothing was held."""
        return float((self._process.memory_info().rss - self._memory_before) / 1e6)

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
        make_client: Any = Client  # it has no types
        client = stack.enter_context(make_client(scheduler_file=str(where), timeout=60, set_as_default=False))
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
    deadline = time.monotonic() + DEADLINE_SECONDS
    while client.run_on_scheduler(_status_of, name=name) != "paused":
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} was not paused within {DEADLINE_SECONDS} s")
        time.sleep(0.05)


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
