"""An array goes from one GPU worker to another through Dask: bytes and seconds."""

from __future__ import annotations

import faulthandler
import os
import time
from typing import Any

from distributed import wait

from benchmarks.gpu.programs import work
from benchmarks.gpu.programs.session import GPU, all_gpu_workers, options, say, session, versions

# Longer than the wait for workers, which says which have come; less than a program is given.
_LONGEST_SECONDS = 150.0


def main() -> None:
    """The seconds from submitting a task that needs the array elsewhere until its answer, so Dask's own are in."""
    parser = options()
    parser.add_argument("--nbytes", type=int, default=1_000_000_000)
    arguments = parser.parse_args()
    # UCX can wait for ever, in the scheduler's handshake as well: then say in which step.
    faulthandler.dump_traceback_later(_LONGEST_SECONDS, exit=True)
    with session(arguments) as client:
        source, target = all_gpu_workers(client, 2)[:2]
        nbytes = arguments.nbytes // arguments.shrink
        _moved(client, source, target, 1_000_000)
        empty = [_moved(client, source, target, 8) for _ in range(arguments.repeats)]
        seconds = [_moved(client, source, target, nbytes) for _ in range(arguments.repeats)]
        protocol = source.partition(":")[0]
        by = client.run(work.transports, workers=[source])[source] if protocol.startswith("ucx") else []
        figures = {"nbytes": nbytes, "seconds": seconds, "empty_seconds": empty, "transports": by}
        say(how=f"dask, {protocol}", **figures, versions=versions())
        faulthandler.cancel_dump_traceback_later()
        if arguments.scheduler and protocol.startswith("ucx"):
            os._exit(0)  # what UCX does at the end is not measured here, and no cluster of this pod's is to be closed


def _moved(client: Any, source: str, target: str, nbytes: int) -> float:
    array = client.submit(work.hold, 1, nbytes, workers=[source], resources=GPU, pure=False)
    wait([array])  # type: ignore[no-untyped-call]
    began = time.perf_counter()
    came = client.submit(work.touch, array, workers=[target], resources=GPU, pure=False).result()
    seconds = time.perf_counter() - began
    if came != nbytes:
        raise RuntimeError(f"{nbytes} bytes should have come, but {came} did")
    return seconds


if __name__ == "__main__":
    main()
