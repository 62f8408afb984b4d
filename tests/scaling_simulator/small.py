"""Small traces, by hand: a few tasks on few pods, with nodes that are there at once unless said otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.scaling.trace import GPU, PLAIN, Machines, Resources, Task, Trace

AT_ONCE = Machines(start_seconds=4.0, end_seconds=1.0)


def task(seconds: float, resources: Resources = GPU, *, job: int = 0, needs: Sequence[int] = (), of: str = "t") -> Task:
    return Task(job, of, seconds, resources, tuple(needs))


def cpu_task(seconds: float, *, job: int = 0, needs: Sequence[int] = (), of: str = "c") -> Task:
    return task(seconds, PLAIN, job=job, needs=needs, of=of)


def pools(*, cpu: tuple[int, int] = (1, 2), gpu: tuple[int, int] = (0, 2), idle: str = "10s") -> list[dict[str, Any]]:
    """A CPU and a GPU pool of one-slot pods, with their least and most pods."""
    return [
        {"name": "cpu", "autoscale": {"min": cpu[0], "max": cpu[1], "idleTimeout": idle}},
        {"name": "gpu", "gpu": {"count": 1}, "autoscale": {"min": gpu[0], "max": gpu[1], "idleTimeout": idle}},
    ]


def trace(*tasks: Task, submitted: Sequence[float] = (0.0,), machines: Machines = AT_ONCE, **sizes: Any) -> Trace:
    return Trace("small", tasks, tuple(submitted), pools(**sizes), machines)
