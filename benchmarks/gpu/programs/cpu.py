"""The classic without GPUs: on one thread, and on all cores as processes, in NumPy alone."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from benchmarks.gpu.programs import work
from benchmarks.gpu.programs.session import say, shrinkable, versions

# The first is what this was measured with elsewhere; the second stays in a core's cache, which suits CPUs better.
_CHUNK_BYTES = (800_000_000, 1_000_000)
_NEW, _OLD = "default_rng", "RandomState"


def part(seed: int, chunk_bytes: int, chunks: int, generator: str = _NEW) -> float:
    """So many chunks, one after the other: random doubles, every second one, + 1, their mean."""
    old = generator == _OLD
    doubles: Any = np.random.RandomState(seed).random_sample if old else np.random.default_rng(seed).random
    count = chunk_bytes // work.BYTES_OF_A_DOUBLE
    return sum(float((doubles(count)[::2] + 1).mean()) for _ in range(chunks)) / chunks


def main() -> None:
    """Measure parts of it; `measured_bytes` says from how much the rest is extrapolated."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--thread-bytes", type=float, default=3.2e9)
    parser.add_argument("--cores-bytes", type=float, default=80e9)
    shrinkable(parser)
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    one, all_cores = arguments.thread_bytes / arguments.shrink, arguments.cores_bytes / arguments.shrink
    chunks = [size // arguments.shrink for size in _CHUNK_BYTES]
    rows = [_alone(chunk, one, arguments.repeats, _NEW) for chunk in chunks]
    rows.append(_alone(chunks[0], one, arguments.repeats, _OLD))
    rows += [_together(chunk, all_cores, arguments.repeats, cores) for chunk in chunks]
    say(rows=rows, versions=versions())


def _alone(chunk: int, total: float, repeats: int, generator: str) -> dict[str, Any]:
    chunks = max(1, round(total / chunk))
    part(0, chunk, 1, generator)
    seconds = [_timed(lambda: part(1, chunk, chunks, generator)) for _ in range(repeats)]
    return _row(1, chunk, chunks * chunk, seconds) | {"generator": generator}


def _together(chunk: int, total: float, repeats: int, cores: int) -> dict[str, Any]:
    """Each process has as many chunks as any other."""
    chunks = max(1, round(total / chunk / cores))
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("fork")) as processes:

        def everyone(each: int) -> None:
            list(processes.map(part, range(cores), [chunk] * cores, [each] * cores))

        everyone(1)
        seconds = [_timed(lambda: everyone(chunks)) for _ in range(repeats)]
    return _row(cores, chunk, cores * chunks * chunk, seconds) | {"generator": _NEW}


def _timed(call: Any) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _row(threads: int, chunk: int, measured: int, seconds: list[float]) -> dict[str, Any]:
    return {"threads": threads, "chunk_bytes": chunk, "measured_bytes": measured, "seconds": seconds}


if __name__ == "__main__":
    main()
