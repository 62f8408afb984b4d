"""The functions of the tests' tasks, and a record of where they ran. Uploaded to the scheduler and the workers."""

from __future__ import annotations

import os
import time
from typing import Any

import pandas as pd
from distributed import Client, SchedulerPlugin, Worker, get_worker, worker_client


def work(value: Any, seconds: float = 0.0) -> Any:
    """Give `value` back after a while."""
    time.sleep(seconds)
    return value


def wait_for_release(value: Any) -> Any:
    """Give `value` back once `release` was called on this worker."""
    worker = get_worker()
    while not getattr(worker, "released", False):
        time.sleep(0.05)
    return value


def fail_as_a_sick_device(_number: int) -> None:
    """Fail as a task does whose GPU has a memory error."""
    raise RuntimeError("CUDA error: cudaErrorECCUncorrectable: uncorrectable ECC error encountered")


def work_once_released(value: Any, seconds: float) -> Any:
    """Give `value` back after a while that begins once `release` was called on this worker."""
    wait_for_release(value)
    return work(value, seconds)


def work_unless_released(value: Any, seconds: float) -> Any:
    """Give `value` back after a while, or as soon as `release` was called on this worker."""
    worker, until = get_worker(), time.monotonic() + seconds
    while time.monotonic() < until and not getattr(worker, "released", False):
        time.sleep(0.02)
    return value


def lead(count: int) -> int:
    """The sum of so many tasks that wait for release, from within a task."""
    with worker_client() as client:
        return sum(client.gather(client.map(wait_for_release, range(count), pure=False)))


def part_of(number: int) -> pd.DataFrame:
    """A part of a table; the first one at once, the others once released."""
    if number:
        wait_for_release(number)
    return pd.DataFrame({"a": range(4 * number, 4 * number + 4)})


class Tally:
    """An actor that adds up."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, amount: int) -> int:
        self.total += amount
        return self.total


def release(dask_worker: Any) -> None:
    """Let the tasks of a worker end that wait for it, now and from now on."""
    dask_worker.released = True


def variable(name: str) -> str | None:
    """An environment variable of the worker."""
    return os.environ.get(name)


def first_visible_gpu(_number: int, seconds: float = 0.0) -> str:
    """The GPU that dask-cuda gave to the worker, after a while."""
    time.sleep(seconds)
    return os.environ["CUDA_VISIBLE_DEVICES"].partition(",")[0]


def make_only_on_gpu(payload: int) -> OnlyOnGpu:
    """A value that only GPU workers can hold."""
    return OnlyOnGpu(payload)


def read_only_on_gpu(value: OnlyOnGpu) -> int:
    """What is in it."""
    return value.payload


class OnlyOnGpu:
    """Like an array on a device: it unpickles on GPU workers alone, and elsewhere leaves a trace of the attempt."""

    def __init__(self, payload: int) -> None:
        self.payload = payload

    def __reduce__(self) -> Any:
        # Not by reference to _rebuild: an upload loads this module anew, and the old function is then another one.
        return eval, (f"__import__('gpudask_e2e')._rebuild({self.payload})",)


def _rebuild(payload: int) -> OnlyOnGpu:
    worker = next(iter(Worker._instances))  # get_worker() finds none where a message is taken apart
    if "GPU" not in worker.state.total_resources:
        worker.misplaced = getattr(worker, "misplaced", 0) + 1
        raise TypeError("this value was sent to a worker without a GPU")
    return OnlyOnGpu(payload)


def misplaced(dask_worker: Any) -> int:
    """How often a worker was sent a value that it cannot hold."""
    return int(getattr(dask_worker, "misplaced", 0))


class Record(SchedulerPlugin):
    """Every task that ended, with its worker, as the scheduler saw it; and, in one order, ends and workers' ways."""

    name = "gpudask-test-record"

    def start(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.ends: list[tuple[str, str, str]] = []
        self.story: list[tuple[str, str]] = []
        self.names = {address: str(worker.name) for address, worker in scheduler.workers.items()}

    def add_worker(self, scheduler: Any, worker: str) -> None:
        self.names[worker] = str(scheduler.workers[worker].name)
        self.story.append(("joined", self.names[worker]))

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:  # noqa: ARG002
        self.story.append(("left", self.names.get(worker, worker)))

    def transition(self, key: Any, start: str, finish: str, *_: Any, **details: Any) -> None:
        if start == "processing" and finish in ("memory", "erred"):
            worker = self.scheduler.workers.get(details.get("worker"))
            self.ends.append((str(key), finish, str(worker.name) if worker else ""))
            self.story.append(("ended", str(key)))


def read_record(dask_scheduler: Any) -> list[tuple[str, str, str]]:
    """The record, on the scheduler."""
    return list(dask_scheduler.plugins["gpudask-test-record"].ends)


def read_story(dask_scheduler: Any) -> list[tuple[str, str]]:
    """What happened in which order, on the scheduler: `("ended", key)`, `("joined", worker)` and `("left", worker)`."""
    return list(dask_scheduler.plugins["gpudask-test-record"].story)


def record(client: Client) -> None:
    """Begin to record."""
    client.register_plugin(Record())


def ends(client: Client, keys: Any) -> dict[str, list[str]]:
    """Key -> the workers on which it ended, once for each execution."""
    found: dict[str, list[str]] = {str(key): [] for key in keys}
    for key, _, worker in client.run_on_scheduler(read_record):
        if key in found:
            found[key].append(worker)
    return found


def processing_on(dask_scheduler: Any) -> dict[str, int]:
    """Worker name -> tasks that it was given and has not finished."""
    return {str(ws.name): len(ws.processing) for ws in dask_scheduler.workers.values()}


def who_has(key: str, dask_scheduler: Any) -> list[str]:
    """The names of the workers that hold a result."""
    task = dask_scheduler.tasks.get(key)
    return [str(ws.name) for ws in (task.who_has or ())] if task else []


def statuses(dask_scheduler: Any) -> dict[str, str]:
    """Worker name -> its status."""
    return {str(ws.name): ws.status.name for ws in dask_scheduler.workers.values()}


def drains(dask_scheduler: Any) -> dict[str, str]:
    """Worker name -> how far its drain is, in the preload's words."""
    retirement = dask_scheduler.plugins["gpudask"].retirement
    return {str(ws.name): retirement.state_of(ws) for ws in dask_scheduler.workers.values()}


def shuffles(dask_scheduler: Any) -> int:
    """How many P2P shuffles run."""
    return len(dask_scheduler.plugins["shuffle"].active_shuffles)


def is_running(dask_scheduler: Any) -> bool:
    """Whether any task runs or waits for a worker's slot."""
    return any(ws.processing for ws in dask_scheduler.workers.values())
