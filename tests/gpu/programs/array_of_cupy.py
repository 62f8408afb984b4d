"""Every second element of an array, + 1, mean: the blocks are CuPy's, and this process has no GPU.

Run in the scheduler's pod. Prints one line of JSON.
"""

from __future__ import annotations

import json
from typing import Any

import cupy
import dask.array as da
import numpy as np
from dask import annotate
from distributed import Client

BLOCKS = 8
BLOCK = 4_000_000


def block(block_info: Any = None) -> Any:
    """The numbers of one block, on the worker's device."""
    (number,) = block_info[None]["chunk-location"]
    return cupy.arange(number * BLOCK, (number + 1) * BLOCK, dtype="f8")


def on_host(values: Any) -> Any:
    """A block in the host's memory: what a program without a device can receive."""
    return cupy.asnumpy(values)


def library(values: Any) -> Any:
    """Which library made a block."""
    return np.array([type(values).__module__.partition(".")[0]])


def devices() -> int:
    """How many GPUs this process sees."""
    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


def main() -> None:
    """Compute, and tell what came of it."""
    # The blocks' kind is told with NumPy's, of which an empty one can be made without a device.
    empty = np.empty((0,), dtype="f8")
    numbers = da.map_blocks(block, chunks=((BLOCK,) * BLOCKS,), dtype="f8", meta=empty)
    mean = (numbers[::2] + 1).mean().map_blocks(on_host, dtype="f8", meta=np.empty((), dtype="f8"))
    kinds = numbers.map_blocks(library, chunks=((1,) * BLOCKS,), dtype="U8", meta=np.empty((0,), dtype="U8"))
    with Client("tcp://127.0.0.1:8786"), annotate(resources={"GPU": 1}):
        told = {
            "devices_here": devices(),
            "mean": float(mean.compute()),
            "expected": BLOCKS * BLOCK / 2,
            "blocks": sorted({str(kind) for kind in kinds.compute()}),
        }
    print(json.dumps(told))


main()
