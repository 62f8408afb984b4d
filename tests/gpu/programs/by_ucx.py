"""An array made by one GPU worker is read by another, over UCX; run in the scheduler's pod. Prints one line of JSON."""

from __future__ import annotations

import json
import socket
from typing import Any

from distributed import Client

ELEMENTS = 1_000_000
GPU = {"GPU": 1}


def made() -> Any:
    """An array on the worker's device: 0, 1, 2 and so on."""
    import cupy  # noqa: PLC0415

    return cupy.arange(ELEMENTS, dtype="f8")


def seen(values: Any) -> dict[str, Any]:
    """What an array is where it came to."""
    return {"module": type(values).__module__.partition(".")[0], "sum": float(values.sum())}


def main() -> None:
    """Move it, and tell what came of it."""
    with Client(f"ucxx://{socket.gethostbyname(socket.gethostname())}:8786", timeout=60) as client:
        workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
        array = client.submit(made, workers=workers[:1], resources=GPU, pure=False)
        told = client.submit(seen, array, workers=workers[-1:], resources=GPU, pure=False).result(timeout=60)
        print(json.dumps(told | {"workers": workers, "expected": ELEMENTS * (ELEMENTS - 1) / 2}), flush=True)


main()
