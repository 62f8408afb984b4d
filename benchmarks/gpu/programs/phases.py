"""When each kind of task ran, on how many workers, and what they did meanwhile: from the scheduler's task stream."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from dask.utils import key_split


def begin(client: Any) -> None:
    """Let the scheduler keep what its workers tell of each task from now on."""
    client.get_task_stream(count=1)


def phases(client: Any, started: float) -> list[dict[str, Any]]:
    """A row for each kind of task: see `of`. `started`: `time.time()` when the program began."""
    return of(client.get_task_stream(start=started), started)


def of(records: list[dict[str, Any]], started: float) -> list[dict[str, Any]]:
    """In the order in which they began; seconds since `started`, and sums over all workers of what took them.

    `compute`: the tasks themselves. `transfer`: until what they need had come. `tasks`: by worker, the most first.
    """
    kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        if record["startstops"]:
            kinds[key_split(record["key"])].append(record)
    rows = [_row(kind, mine, started) for kind, mine in kinds.items()]
    return sorted(rows, key=lambda row: row["began"])


def _row(kind: str, records: list[dict[str, Any]], started: float) -> dict[str, Any]:
    done = [step for record in records for step in record["startstops"]]
    workers: dict[str, int] = defaultdict(int)
    for record in records:
        workers[record["worker"]] += 1
    return {
        "kind": kind,
        "began": min(step["start"] for step in done) - started,
        "ended": max(step["stop"] for step in done) - started,
        **{
            action: sum(step["stop"] - step["start"] for step in done if step["action"] == action)
            for action in ("compute", "transfer")
        },
        "tasks": sorted(workers.values(), reverse=True),
    }
