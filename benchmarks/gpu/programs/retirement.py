"""Results that lie on GPUs while one of their workers is retired: what each worker held before and after."""

from __future__ import annotations

import time
from typing import Any

from distributed import wait

from benchmarks.gpu.programs import work
from benchmarks.gpu.programs.session import GPU, all_gpu_workers, gpu_workers, options, say, session, versions

_ARRAYS = 8
_DEADLINE_SECONDS = 90.0
_POLL_SECONDS = 0.02


def main() -> None:
    """Make the results, say so, wait until a worker has gone, and look at every result."""
    parser = options()
    parser.add_argument("--array-bytes", type=int, default=250_000_000)
    arguments = parser.parse_args()
    with session(arguments) as client:
        workers, array_bytes = all_gpu_workers(client, arguments.gpus), arguments.array_bytes // arguments.shrink
        names = gpu_workers(client)
        owner = {number: workers[number % len(workers)] for number in range(1, _ARRAYS * len(workers) + 1)}
        futures = {
            number: client.submit(work.hold, number, array_bytes, workers=[worker], resources=GPU, pure=False)
            for number, worker in owner.items()
        }
        wait(list(futures.values()))  # type: ignore[no-untyped-call]
        say(held=_held(client, owner, futures, names, array_bytes), at=time.time())
        gone = _gone(client, workers)
        left = time.time()
        for future in futures.values():
            if future.status != "finished":
                raise RuntimeError(f"a result was lost: {future.key} is {future.status}")
        now = client.who_has(list(futures.values()))
        on_gpus = set(gpu_workers(client))
        seen = {number: _seen(client, future) for number, future in futures.items()}
        say(
            left=left,
            gone=names[gone],
            on_gpu_workers=all(set(holders) <= on_gpus for holders in now.values()),
            intact=all(row == (True, array_bytes, float(number)) for number, row in seen.items()),
            versions=versions(),
        )


def _held(
    client: Any, owner: dict[int, str], futures: dict[int, Any], names: dict[str, str], array_bytes: int
) -> dict[str, int]:
    """The bytes of results that each worker holds, by its name: nothing is retired before all are where they belong.

    Raises:
        RuntimeError: some are not; the text says where they are.
    """
    holders = client.who_has(list(futures.values()))
    found = {number: list(holders[future.key]) for number, future in futures.items()}
    astray = {number: workers for number, workers in found.items() if workers != [owner[number]]}
    if astray:
        raise RuntimeError(f"each array should be on one worker, {owner}, but these are elsewhere: {astray}")
    return {names[worker]: array_bytes * sum(each == worker for each in owner.values()) for worker in names}


def _gone(client: Any, workers: list[str]) -> str:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not (missing := set(workers) - set(gpu_workers(client))):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no worker was retired within {_DEADLINE_SECONDS:.0f} s: {workers} are all there")
        time.sleep(_POLL_SECONDS)
    return missing.pop()


def _seen(client: Any, future: Any) -> tuple[bool, int, float]:
    on_device, nbytes, mean = client.submit(work.look, future, resources=GPU, pure=False).result(_DEADLINE_SECONDS)
    return on_device, nbytes, mean


if __name__ == "__main__":
    main()
