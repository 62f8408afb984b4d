"""`python - --gpus 2 [--scheduler ADDRESS] < rates.py`: how fast frames of cuDF are merged and shuffled.

On the cluster at the address, or without one on `LocalCUDACluster`. Prints one line of JSON: GB/s of both inputs,
from asking until all of the result is there; the median of some. The frames are in the devices' memory before. Fails
where a task fails, or rows are missing: what ends early is no rate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

ROWS_A_WORKER = 25_000_000
"""Of 16 bytes: a key and a value."""
RMM_POOL = "100Gi"
"""Of each worker, in advance. Without one cuda_ipc maps each frame anew, and fails where one is mapped already."""
_PARTS_A_WORKER = 4
_REPEATS = 3
_GPU = {"GPU": 1}


def compared(here: Mapping[str, float], local: Mapping[str, float]) -> str:
    """The closing line's figures of rates in GB/s: here, and against `LocalCUDACluster`; `n/a` without a rate."""

    def ratio(name: str) -> str:
        return f"{here[name] / local[name]:.2f}x" if here.get(name) and local.get(name) else "n/a"

    merge = f"{here['merge']:.1f}GB/s" if here.get("merge") else "n/a"
    return f"merge={merge} merge_vs_localcuda={ratio('merge')} shuffle_vs_localcuda={ratio('shuffle')}"


def measure(gpus: int, rows: int, method: str) -> dict[str, float]:
    """GB/s of a merge and of a shuffle by this method of moving rows, with the default client."""
    import dask_cudf  # noqa: PLC0415 - `compared` needs no cuDF
    from distributed import futures_of, get_client, wait  # noqa: PLC0415

    import dask  # noqa: PLC0415
    import dask.dataframe as dd  # noqa: PLC0415

    assert dask_cudf
    client = get_client()
    workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
    assert len(workers) == gpus, f"{len(workers)} workers for {gpus} GPUs"

    def frame(step: int) -> Any:
        """As many parts of it on each worker: where one has more, fewer rows have to move, and the link counts less."""
        parts = list(range(gpus * _PARTS_A_WORKER))
        each = [dd.from_map(_table, parts[n::gpus], rows=rows // _PARTS_A_WORKER, step=step) for n in range(gpus)]
        return dd.concat([client.persist(some, workers=[worker]) for some, worker in zip(each, workers, strict=True)])

    left, right = frame(1), frame(3)
    wait(futures_of([left, right]))
    total = rows * gpus
    megabytes = total * 16 / 1e6

    def rate(make: Callable[[], Any], sources: int, expected: int) -> float:
        seconds = []
        for _ in range(_REPEATS + 1):  # the first one compiles kernels and opens connections
            began = time.monotonic()
            result = make().persist()
            wait(result)
            seconds.append(time.monotonic() - began)
            for future in futures_of(result):
                if future.status != "finished":
                    future.result()  # raises
            assert len(result) == expected, f"{len(result)} rows of {expected}"
            del result
        return sources * megabytes / 1e3 / statistics.median(seconds[1:])

    with dask.config.set({"dataframe.shuffle.method": method}):
        both = -(-total // 3)  # of the keys each third is in both
        merge = rate(lambda: left.merge(right, on="key"), 2, expected=both)
        return {"merge": merge, "shuffle": rate(lambda: left.shuffle("key"), 1, expected=total)}


def _table(part: int, rows: int, step: int) -> Any:
    import cudf  # noqa: PLC0415 - on the worker
    import cupy  # noqa: PLC0415

    keys = (cupy.arange(rows, dtype="i8") + part * rows) * step
    return cudf.DataFrame({"key": keys, "value": cupy.arange(rows, dtype="f8")})


def main() -> int:
    """Measure, and print."""
    from distributed import Client  # noqa: PLC0415

    parser = argparse.ArgumentParser(prog="rates", description=__doc__)
    parser.add_argument("--scheduler", help="its address; default: LocalCUDACluster")
    parser.add_argument("--protocol", default="tcp", help="of LocalCUDACluster (%(default)s)")
    parser.add_argument("--method", default="p2p", choices=("p2p", "tasks"), help="by disks, or from worker to worker")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--rows", type=int, default=ROWS_A_WORKER, help="a worker")
    arguments = parser.parse_args()
    client: Any = Client
    with ExitStack() as closed:
        address = arguments.scheduler
        if address is None:
            from dask_cuda import LocalCUDACluster  # noqa: PLC0415

            links = {} if arguments.protocol == "tcp" else {"enable_tcp_over_ucx": True, "enable_nvlink": True}
            local = LocalCUDACluster(
                n_workers=arguments.gpus,
                protocol=arguments.protocol,
                resources=_GPU,
                dashboard_address=None,
                rmm_pool_size=RMM_POOL,
                **links,
            )
            address = closed.enter_context(local)
        closed.enter_context(client(address, timeout=120))
        print(json.dumps(measure(arguments.gpus, arguments.rows, arguments.method)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
