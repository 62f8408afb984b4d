"""An array made by one GPU worker is read by another, over UCX; run in the scheduler's pod. Prints one line of JSON.

Each step says when it begins, and one that takes too long ends the program and says where it hangs.
"""

from __future__ import annotations

import faulthandler
import json
import os
import socket
import sys
import time
from typing import Any

from distributed import Client, wait

ELEMENTS = 1_000_000
GPU = {"GPU": 1}
STEP_SECONDS = 30
BEGAN = time.monotonic()


def made() -> Any:
    """An array on the worker's device: 0, 1, 2 and so on."""
    import cupy  # noqa: PLC0415

    return cupy.arange(ELEMENTS, dtype="f8")


def seen(values: Any) -> dict[str, Any]:
    """What an array is where it came to."""
    return {"module": type(values).__module__.partition(".")[0], "sum": float(values.sum())}


def begin(step: str) -> None:
    """Tell of a step, and give it its time."""
    print(f"{time.monotonic() - BEGAN:6.2f} s {step}", file=sys.stderr, flush=True)
    faulthandler.dump_traceback_later(STEP_SECONDS, exit=True)


def main() -> None:
    """Move it, and tell what came of it."""
    begin("connecting")
    client = Client(f"ucxx://{socket.gethostbyname(socket.gethostname())}:8786", timeout=STEP_SECONDS)
    begin("asking for workers")
    workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
    begin(f"making an array on {workers[0]}")
    array = client.submit(made, workers=workers[:1], resources=GPU, pure=False)
    wait(array, timeout=STEP_SECONDS)
    begin(f"moving it to {workers[-1]}")
    told = client.submit(seen, array, workers=workers[-1:], resources=GPU, pure=False).result(timeout=STEP_SECONDS)
    print(json.dumps(told | {"workers": workers, "expected": ELEMENTS * (ELEMENTS - 1) / 2}), flush=True)
    begin("closing")
    client.close()
    begin("the end")
    os._exit(0)  # what UCX does at the interpreter's end is not this test's


main()
