"""A program whose scheduler goes and cannot come back. It prints what it is told, and after how many seconds.

Argument: the name of a cluster.
"""

import sys
import time
from collections.abc import Callable

from distributed import Client
from distributed.client import FutureCancelledError

from gpudask import KubeCluster


def told(what: str, does: Callable[[], object]) -> None:
    began = time.monotonic()
    try:
        seen = does()
    except Exception as error:  # noqa: BLE001 - whatever it is, the test reads it
        seen = f"{type(error).__name__}: {error}".replace("\n", " ")
    print(f"{what}: {time.monotonic() - began:.1f} s, {seen}", flush=True)


if __name__ == "__main__":
    with KubeCluster.from_name(sys.argv[1], quiet=True) as found:
        with Client(found) as client:
            busy = client.submit(time.sleep, 600)
            print("it works:", client.submit(sum, [1, 2]).result(timeout=60), flush=True)
            try:
                busy.result()
            except FutureCancelledError:
                told("a task", lambda: client.submit(sum, [1, 2], pure=False).result(timeout=60))
        told("a client", lambda: Client(found))
