"""The functions that clients submit, and the record of their runs. The record is the side effect that nothing repeats.

A result is a number that follows from the task's inputs, so that a lost or foreign one is seen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from distributed import secede, worker_client

from .loop import CLOCK, HOST, Host

SOMETHING = (
    0.0005  # seconds: no task takes no time, but in virtual time it would, and distributed asserts that none does
)


class ExpectedError(Exception):
    """What a task raises that is meant to fail."""


@dataclass(eq=False)
class Run:
    """One run of a task. `ended` is None while it runs, and for ever where its process died."""

    key: str
    host: Host
    started: float
    ended: float | None = None
    failed: bool = False


@dataclass
class Record:
    """The runs of one history by task, in the order in which they began."""

    runs: dict[str, list[Run]] = field(default_factory=dict)

    def begin(self, key: str) -> Run:
        """Note that a task begins here and now."""
        run = Run(key, HOST.get(), CLOCK.now)
        self.runs.setdefault(key, []).append(run)
        return run

    def end(self, run: Run, fails: int, number: int, inputs: Iterable[Any]) -> int:
        """Note that it ends; the first `fails` runs raise."""
        run.ended = CLOCK.now
        if sum(other.failed for other in self.runs[run.key]) < fails:
            run.failed = True
            raise ExpectedError(run.key)
        return number + sum(inputs)


class Current:
    """The record of the history that runs."""

    record = Record()


def begin(key: str) -> Run:
    """Note that a task begins."""
    return Current.record.begin(key)


async def work(key: str, seconds: float, fails: int, number: int, *inputs: int) -> int:
    """Work on the worker's event loop."""
    run = begin(key)
    await asyncio.sleep(seconds + SOMETHING)
    return Current.record.end(run, fails, number, inputs)


async def hold(key: str, seconds: float, fails: int, number: int, *inputs: int) -> int:
    """Hold the GIL: nothing else of the worker runs meanwhile, its messages wait."""
    run = begin(key)
    HOST.get().hold(asyncio.get_running_loop(), seconds)
    await asyncio.sleep(SOMETHING)
    return Current.record.end(run, fails, number, inputs)


def work_in_thread(key: str, seconds: float, fails: int, number: int, *inputs: int) -> int:
    """Work in a thread, as plain functions do."""
    run = begin(key)
    time.sleep(seconds + SOMETHING)
    return Current.record.end(run, fails, number, inputs)


def work_seceded(key: str, seconds: float, fails: int, number: int, *inputs: int) -> int:
    """Leave the worker's slots, and work on."""
    run = begin(key)
    time.sleep(seconds / 4 + SOMETHING)
    secede()
    time.sleep(seconds)
    return Current.record.end(run, fails, number, inputs)


def work_with_client(key: str, seconds: float, fails: int, number: int, *inputs: int) -> int:
    """Submit two tasks from within a task, and wait for them."""
    run = begin(key)
    tries = len(Current.record.runs[key])
    time.sleep(SOMETHING)
    with worker_client() as client:
        futures = [client.submit(work, f"{key}.{tries}.{i}", seconds, 0, i, key=f"{key}.{tries}.{i}") for i in range(2)]
        results = client.gather(futures)
    assert results == [0, 1], results
    return Current.record.end(run, fails, number, inputs)


class Counter:
    """An actor."""

    def __init__(self, start: int) -> None:
        self.n = start

    async def add(self, n: int) -> int:
        """Count."""
        self.n += n
        return self.n


FUNCTIONS = {
    "work": work,
    "hold": hold,
    "thread": work_in_thread,
    "secede": work_seceded,
    "client": work_with_client,
}
