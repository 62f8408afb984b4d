"""A user's program: a cluster of two workers, and one result. The same for both clients.

Run by its path, in the interpreter of the client that is measured: it imports nothing else of this repository.
`python program.py MODULE` writes two lines of JSON: seconds of the imports, and, once a line of JSON with the arguments
of `KubeCluster` has come, seconds since the call. Then it ends and tells the cluster nothing: no end is measured.
"""

import importlib
import json
import os
import sys
import time
from typing import Any


def _said(**figures: float) -> None:
    print(json.dumps(figures), flush=True)


def _main(module: str) -> None:
    begun = time.monotonic()
    from distributed import Client  # noqa: PLC0415 - its time counts as the imports'

    kube_cluster = importlib.import_module(module).KubeCluster
    _said(imports=time.monotonic() - begun)

    arguments: dict[str, Any] = json.loads(sys.stdin.readline())
    begun = time.monotonic()
    cluster = kube_cluster(**arguments)
    returned = time.monotonic() - begun
    cluster.wait_for_workers(2)
    ready = time.monotonic() - begun
    result = Client(cluster).submit(sum, [40, 2]).result()  # type: ignore[no-untyped-call]
    _said(call=returned, ready_2=ready, first_result=time.monotonic() - begun, result=result)


if __name__ == "__main__":
    try:
        _main(sys.argv[1])
    except BaseException:  # noqa: BLE001 - whatever it is, it is said, and nothing is closed
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)
