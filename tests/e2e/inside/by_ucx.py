"""An array made by one worker is read by another, over UCX; run in a pod of the cluster. Prints one line of JSON.

Run as `python by_ucx.py ADDRESS MODULE`: the scheduler's, and numpy, or cupy for workers with GPUs. Each step says when
it begins, and one that takes too long ends the program and says where it hangs.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
import time
from typing import Any

from distributed import Client, wait

ELEMENTS = 1_000_000
STEP_SECONDS = 30
BEGAN = time.monotonic()


def made(module: str) -> Any:
    """An array of NumPy or CuPy: 0, 1, 2 and so on."""
    return importlib.import_module(module).arange(ELEMENTS, dtype="f8")


def seen(values: Any) -> dict[str, Any]:
    """What an array is where it came to."""
    return {"module": type(values).__module__.partition(".")[0], "sum": float(values.sum())}


def begin(step: str) -> None:
    """Tell of a step, and give it its time."""
    print(f"{time.monotonic() - BEGAN:6.2f} s {step}", file=sys.stderr, flush=True)
    faulthandler.dump_traceback_later(STEP_SECONDS, exit=True)


def main(address: str, module: str) -> None:
    """Move it, and tell what came of it."""
    resources = {"GPU": 1} if module == "cupy" else None
    begin(f"connecting to {address}")
    client = Client(address, timeout=STEP_SECONDS)
    begin("asking for workers")
    workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
    begin(f"making an array on {workers[0]}")
    array = client.submit(made, module, workers=workers[:1], resources=resources, pure=False)
    wait(array, timeout=STEP_SECONDS)
    begin(f"moving it to {workers[-1]}")
    told = client.submit(seen, array, workers=workers[-1:], resources=resources, pure=False).result(
        timeout=STEP_SECONDS
    )
    print(json.dumps(told | {"workers": workers, "expected": ELEMENTS * (ELEMENTS - 1) / 2}), flush=True)
    begin("closing")
    client.close()
    begin("the end")
    os._exit(0)  # what UCX does at the interpreter's end is not this test's


main(*sys.argv[1:])
