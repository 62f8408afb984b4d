"""Arrays that move by UCX in a cluster of that protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.space import Space

_PROGRAM = Path(__file__).with_name("inside") / "by_ucx.py"
_LIMIT_SECONDS = 100  # the program's own limits say more


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
