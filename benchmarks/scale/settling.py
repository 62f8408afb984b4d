"""Until the operator rests: the end of what an event set going."""

from __future__ import annotations

import asyncio
from time import monotonic

from benchmarks.scale.operator_process import OperatorProcess

_LOOK_SECONDS = 1.0
_LOOKS = 3  # in a row; live figures of a status are written up to five seconds late, which is little work
_IDLE = 0.05  # of a core
_DEADLINE_SECONDS = 120


async def settled(operator: OperatorProcess) -> None:
    """Wait until the operator uses next to no CPU for some seconds.

    Raises:
        TimeoutError: it did not come to rest.
    """
    deadline, quiet, before = monotonic() + _DEADLINE_SECONDS, 0, operator.work
    while quiet < _LOOKS:
        if monotonic() > deadline:
            raise TimeoutError(f"the operator did not come to rest within {_DEADLINE_SECONDS} s")
        await asyncio.sleep(_LOOK_SECONDS)
        now = operator.work
        quiet = quiet + 1 if now.cpu_seconds - before.cpu_seconds < _IDLE * _LOOK_SECONDS else 0
        before = now
