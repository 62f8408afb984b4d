"""CPU load, GPU compute once all is loaded, CPU summary: submitted at once, as a program would."""

from __future__ import annotations

import time
from collections import defaultdict
from statistics import median
from typing import Any

from dask.utils import key_split

from benchmarks.gpu.programs import work
from benchmarks.gpu.programs.session import GPU, all_gpu_workers, options, say, session, versions

_BLOCKS_PER_GPU = 40
_COUNT = 20_000_000
# A load and a summary shall take so long on any machine: the share of CPU and GPU work decides what can be saved.
_LOAD_SECONDS = 8.5
_SIZE = 8192
_PRODUCTS = 40
_SMALLEST = 64


def main() -> None:
    """Run it once. `--fixed` waits for the GPU workers before the clock starts: that pool is always there."""
    parser = options()
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--cpus", type=int, default=1, help="CPU workers to wait for")
    parser.add_argument("--sorts", type=int, help="of a load; without it, as many as take long enough here")
    arguments = parser.parse_args()
    with session(arguments) as client:
        if arguments.fixed:
            all_gpu_workers(client, arguments.gpus)
        client.wait_for_workers(arguments.cpus + (arguments.gpus if arguments.fixed else 0), timeout=60)
        sorts = arguments.sorts or _sorts(client, arguments.shrink)
        _keep_task_stream(client)
        began, started = time.perf_counter(), time.time()
        total = _submitted(client, _BLOCKS_PER_GPU * arguments.gpus, sorts, arguments.shrink).result()
        seconds = time.perf_counter() - began
        ended = time.time()
        ran = phases(client.get_task_stream(start=started), started)
        say(seconds=seconds, started=started, ended=ended, total=total, sorts=sorts, phases=ran, versions=versions())


def _sorts(client: Any, shrink: int) -> int:
    """So many that a load takes as long as it shall while every thread has one."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    loading = {place: row for place, row in workers.items() if not row["resources"].get("GPU")} or workers
    trials = [
        client.submit(work.seconds_of_a_sort, n, count=_COUNT // shrink, workers=[place], pure=False)
        for place, row in loading.items()
        for n in range(row["nthreads"])
    ]
    seconds: float = median(client.gather(trials))
    return max(1, round(_LOAD_SECONDS / shrink / seconds))


def _submitted(client: Any, blocks: int, sorts: int, shrink: int) -> Any:
    """The last future alone is held: no result in between keeps a worker."""
    count, size = _COUNT // shrink, max(_SIZE // shrink, _SMALLEST)
    loaded = client.map(work.load, range(blocks), count=count, repetitions=sorts, pure=False)
    largest = client.submit(max, client.map(work.largest, loaded, pure=False), pure=False)
    refined = client.map(
        work.refine,
        loaded,
        [largest] * blocks,
        size=size,
        repetitions=_PRODUCTS,
        resources=GPU,
        pure=False,
    )
    summaries = client.map(work.summarise, refined, count=count, repetitions=sorts, pure=False)
    return client.submit(sum, summaries, pure=False)


def _keep_task_stream(client: Any) -> None:
    """Let the scheduler keep what its workers tell of each task from now on."""
    client.get_task_stream(count=1)


def phases(records: list[dict[str, Any]], started: float) -> list[dict[str, Any]]:
    """When each kind of task ran, on how many workers, and what they did meanwhile: from the scheduler's task stream.

    In the order in which they began; seconds since `started`, the `time.time()` when the program began, and sums over
    all workers of what took them.

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


if __name__ == "__main__":
    main()
