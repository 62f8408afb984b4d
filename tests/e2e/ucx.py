"""Arrays that move by UCX: in a cluster of that protocol, or from a pool of it in a cluster of tcp."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from distributed import Client

from tests.e2e.space import Space

_PROGRAM = Path(__file__).with_name("inside") / "by_ucx.py"
_LIMIT_SECONDS = 100  # the program's own limits say more
_STEP_SECONDS = 30
BYTES = 1_000_000


def moved(room: Space, cluster: str, module: str, python: str = "python") -> dict[str, Any]:
    """An array of `module` that one worker made and another one read, as by_ucx.py tells of it.

    A program of this machine speaks no UCX with a pod's network; one in the scheduler's pod does. It dials the address
    that the status tells programs to dial.
    """
    (scheduler,) = room.names(cluster)
    address = room.status(cluster)["scheduler"]["address"]
    words = ["timeout", str(_LIMIT_SECONDS), python, "-", address, module]
    printed = room.kubectl("exec", "-i", scheduler, "--", *words, stdin=_PROGRAM.read_text()).stdout
    told = dict(json.loads(next(line for line in printed.splitlines() if line.startswith("{"))))
    assert all(worker.startswith("ucxx://") for worker in told["workers"]), told
    assert (told["module"], told["sum"]) == (module, told["expected"])
    return told


def moved_beside_tcp(client: Client, own: str, other: str) -> int:
    """How many bytes go around: made in the pool `own`, whose workers speak UCX, read by each kind of the others.

    From the last worker of the pool to its first, to one of `other`, which speaks tcp, back, and to the program.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"].items()
    of = {
        pool: sorted(address for address, worker in workers if f"-{pool}-worker-" in worker["name"])
        for pool in (own, other)
    }
    assert all(address.startswith("ucxx://") for address in of[own]), of
    assert all(address.startswith("tcp://") for address in of[other]), of
    made = client.submit(os.urandom, BYTES, workers=of[own][-1:], pure=False)
    for worker in (of[own][0], of[other][0], of[own][0]):
        made = client.submit(bytes.upper, made, workers=[worker], pure=False)
    return len(made.result(timeout=_STEP_SECONDS))
