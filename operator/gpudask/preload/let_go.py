"""Lets results go with the worker that holds them, without computing them again before somebody asks.

Dask computes a lost result again as soon as it is lost, while a client holds its future. On a GPU pool that is demand:
the pod that was to leave would be followed by another one at once, which holds the same results. So a result that is
let go becomes an error that says so, and `Client.retry` computes it again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from distributed.protocol.serialize import Serialized, serialize

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distributed.scheduler import Scheduler, TaskState, WorkerState


def let_go(scheduler: Scheduler, ws: WorkerState, results: Iterable[TaskState]) -> None:
    """Give up `results`, of which `ws` has the only copies.

    Left to Dask is what it has to compute again at once, because a task waits for it, and what it cannot compute
    again, because a client scattered it: the first is demand, the second is lost with the worker.
    """
    stimulus_id = f"gpudask-let-go-{time.monotonic()}"
    for ts in list(results):
        if ts.waiters or ts.run_spec is None:
            continue
        scheduler.transition(ts.key, "released", stimulus_id=stimulus_id)  # it recommends to compute it: not now
        error = RuntimeError(
            f"the result of {ts.key!r} was let go with the idle worker {ws.name}, which alone had it: its pool's"
            " heldData.releaseAfter has passed, or the cluster is suspended. Client.retry([future]) computes it again"
        )
        ts.exception_blame = ts
        ts.exception = Serialized(*serialize(error))  # type: ignore[no-untyped-call]
        ts.exception_text = str(error)
        scheduler.transitions({ts.key: "erred"}, stimulus_id=stimulus_id)
