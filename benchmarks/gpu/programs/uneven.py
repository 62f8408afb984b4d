"""GPU tasks of unequal lengths, submitted at once where there is no GPU worker."""

from __future__ import annotations

import random
import time

from benchmarks.gpu.programs import work
from benchmarks.gpu.programs.session import GPU, options, say, session, versions

_TASKS = 60
_MEDIAN_SECONDS, _SIGMA = 0.5, 1.0
_SEED = 18
_SIZE = 4096


def lengths(count: int = _TASKS) -> list[float]:
    """Seconds of GPU work of each task, log-normal; the same in each run."""
    drawn = random.Random(_SEED)  # noqa: S311 - lengths, no secrets
    return [_MEDIAN_SECONDS * drawn.lognormvariate(0.0, _SIGMA) for _ in range(count)]


def main() -> None:
    """Submit them, none depending on another, and wait for all; results are numbers, and hold no worker."""
    arguments = options().parse_args()
    seconds = [length / arguments.shrink for length in lengths()]
    with session(arguments) as client:
        began, started = time.perf_counter(), time.time()
        done = client.map(work.busy, seconds, size=_SIZE // min(arguments.shrink, 64), resources=GPU, pure=False)
        ran = client.gather(done)
        say(
            seconds=time.perf_counter() - began,
            started=started,
            ended=time.time(),
            tasks=len(ran),
            task_seconds=sum(ran),
            longest_task=max(ran),
            versions=versions(),
        )


if __name__ == "__main__":
    main()
