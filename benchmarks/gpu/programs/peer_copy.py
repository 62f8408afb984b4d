"""A copy from one GPU to another within one process, by CUDA itself: what the link between them gives."""

from __future__ import annotations

import argparse
import importlib.util
import time

import cupy

from benchmarks.gpu.programs.session import say, shrinkable, versions


def main() -> None:
    """GPU 0 to GPU 1, `--repeats` times; says whether UCX could be had, and whether the GPUs reach each other."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--nbytes", type=int, default=4_000_000_000)
    shrinkable(parser)
    arguments = parser.parse_args()
    nbytes = arguments.nbytes // arguments.shrink
    runtime = cupy.cuda.runtime
    direct = bool(runtime.deviceCanAccessPeer(1, 0) and runtime.deviceCanAccessPeer(0, 1))
    with cupy.cuda.Device(0):
        source = cupy.ones(nbytes, dtype="u1")
        runtime.deviceSynchronize()
    with cupy.cuda.Device(1):
        target = cupy.zeros(nbytes, dtype="u1")
        runtime.deviceSynchronize()
        if direct:
            _let_in(0)
        _copied(target, source)
        seconds = [_copied(target, source) for _ in range(arguments.repeats)]
        if not bool(target.all()):
            raise RuntimeError("the copy should be all ones, and is not")
    how = "CuPy peer copy, GPUs reach each other" if direct else "CuPy peer copy, by way of the host"
    say(how=how, nbytes=nbytes, seconds=seconds, direct=direct, ucxx=_has_ucxx(), versions=versions())


def _let_in(device: int) -> None:
    try:
        cupy.cuda.runtime.deviceEnablePeerAccess(device)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        if "AlreadyEnabled" not in str(error):
            raise


def _copied(target: cupy.ndarray, source: cupy.ndarray) -> float:
    began = time.perf_counter()
    cupy.cuda.runtime.memcpyPeer(target.data.ptr, 1, source.data.ptr, 0, source.nbytes)
    cupy.cuda.runtime.deviceSynchronize()
    return time.perf_counter() - began


def _has_ucxx() -> bool:
    return all(importlib.util.find_spec(name) for name in ("ucxx", "distributed_ucxx"))


if __name__ == "__main__":
    main()
