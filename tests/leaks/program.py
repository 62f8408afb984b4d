"""One program: it makes a cluster, says so, and ends as it is told. `python -m tests.leaks.program JSON`.

All stands at the module's level, as in a script of a user: what a function held would be garbage when it returned.
It is ready, or has forked, when the line says so; it goes on when its standard input ends.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import json
import os
import signal
import sys
import time

READY, FORKED = "leaks: ready", "leaks: forked"

if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it is ignored

    from distributed import Client

    from gpudask import KubeCluster
    from tests.leaks.ways import Ending

    cluster = KubeCluster(
        told["name"],
        custom_cluster_spec=told["manifest"],
        shutdown_after_disconnect="2m",
        quiet=True,
        timeout=told["timeout"],
    )
    if told["has_client"]:
        client = Client(cluster)
        future = client.submit(time.sleep, 3600)
    print(READY, flush=True)
    ending = Ending(told["ending"])
    if ending is Ending.CHILD_FIRST:
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
        print(FORKED, flush=True)
    if ending is Ending.CHILD_LAST and os.fork() == 0:
        print(FORKED, flush=True)
    sys.stdin.read()
    if ending is Ending.EXCEPTION:
        raise RuntimeError("as told")
