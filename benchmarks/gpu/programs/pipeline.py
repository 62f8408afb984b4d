"""CPU load, GPU compute once all is loaded, CPU summary: submitted at once, as a program would."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.gpu.programs import phases, work
from benchmarks.gpu.programs.session import GPU, all_gpu_workers, options, say, session, versions

_BLOCKS_PER_GPU = 40
_COUNT = 20_000_000
_SORTS = 16
_SIZE = 8192
_PRODUCTS = 40
_SMALLEST = 64


def main() -> None:
    """Run it once. `--fixed` waits for the GPU workers before the clock starts: that pool is always there."""
    parser = options()
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--cpus", type=int, default=1, help="CPU workers to wait for")
    arguments = parser.parse_args()
    with session(arguments) as client:
        if arguments.fixed:
            all_gpu_workers(client, arguments.gpus)
        client.wait_for_workers(arguments.cpus + (arguments.gpus if arguments.fixed else 0), timeout=60)
        phases.begin(client)
        began, started = time.perf_counter(), time.time()
        total = _submitted(client, _BLOCKS_PER_GPU * arguments.gpus, arguments.shrink).result()
        seconds = time.perf_counter() - began
        ended = time.time()
        ran = phases.phases(client, started)
        say(seconds=seconds, started=started, ended=ended, total=total, phases=ran, versions=versions())


def _submitted(client: Any, blocks: int, shrink: int) -> Any:
    """The last future alone is held: no result in between keeps a worker."""
    count, size = _COUNT // shrink, max(_SIZE // shrink, _SMALLEST)
    loaded = client.map(work.load, range(blocks), count=count, repetitions=_SORTS, pure=False)
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
    summaries = client.map(work.summarise, refined, count=count, repetitions=_SORTS, pure=False)
    return client.submit(sum, summaries, pure=False)


if __name__ == "__main__":
    main()
