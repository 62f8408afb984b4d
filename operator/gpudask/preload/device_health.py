"""Device health: workers where task after task fails with a CUDA error that no further task will survive.

Names and meanings of the errors: CUDA Runtime API, `cudaError`, and CUDA Driver API, `CUresult`; those are named here
after which "the process must be terminated and relaunched", and those that say that the device itself has failed or
gone. An allocation that fails is neither: the next task may fit.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .part import Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed.scheduler import Scheduler, WorkerState

    from .counts import FinishedTasks
    from .pools import Pools

logger = logging.getLogger("gpudask.preload")

UNHEALTHY_AFTER = 3  # tasks in a row
MESSAGE_LENGTH = 200  # characters of an error that are reported
SEARCHED_LENGTH = 4000  # characters of an error's text that are searched

_ERRORS = (
    "ILLEGAL_ADDRESS",
    "ILLEGAL_INSTRUCTION",
    "INVALID_ADDRESS_SPACE",
    "INVALID_PC",
    "MISALIGNED_ADDRESS",
    "HARDWARE_STACK_ERROR",
    "LAUNCH_FAILED",
    "LAUNCH_FAILURE",
    "LAUNCH_TIMEOUT",
    "ASSERT",
    "ECC_UNCORRECTABLE",
    "NVLINK_UNCORRECTABLE",
    "CONTAINED",
    "EXTERNAL_DEVICE",
    "TENSOR_MEMORY_LEAK",
    "DEVICE_UNAVAILABLE",
    "DEVICES_UNAVAILABLE",
    "NO_DEVICE",
    "CONTEXT_IS_DESTROYED",
    "SYSTEM_NOT_READY",
)
_MESSAGES = (
    "an illegal memory access was encountered",
    "an illegal instruction was encountered",
    "misaligned address",
    "unspecified launch failure",
    "device-side assert triggered",
    "hardware stack error",
    "uncorrectable ECC error",
    "uncorrectable NVLink error",
    "no CUDA-capable device is detected",
    "CUDA-capable device(s) is/are busy or unavailable",
    "device lost",
    "device is lost",
    "GPU is lost",
    "GPU has fallen off the bus",
)
# `cudaErrorIllegalAddress` and `CUDA_ERROR_ILLEGAL_ADDRESS` are one error: names are compared without their `_`
_DEVICE_FAILURE = re.compile(
    "|".join(
        [rf"cuda_?error_?{name.replace('_', '_?')}(?![a-z])" for name in _ERRORS]
        + [re.escape(text) for text in _MESSAGES]
    ),
    re.IGNORECASE,
)
_OUT_OF_MEMORY = re.compile(r"out[ _]?of[ _]?memory|cudaErrorMemoryAllocation|bad_alloc", re.IGNORECASE)


def is_device_failure(error: str) -> bool:
    """Return whether the text of a task's error means that its process can use its device no more."""
    text = error[:SEARCHED_LENGTH]
    return _DEVICE_FAILURE.search(text) is not None and _OUT_OF_MEMORY.search(text) is None


@dataclass(slots=True)
class _Row:
    failed: int  # tasks in a row
    ended: int  # of the worker's own tasks when the last of them failed: more since then is a success
    message: str


class DeviceHealth(Part):
    """Counts failures in a row, by worker: it keeps one entry for each worker that fails at present."""

    feature = "sick"
    attributes = ("stream_handlers",)

    def __init__(self, scheduler: Scheduler, pools: Pools, finished: FinishedTasks) -> None:
        self._scheduler = scheduler
        self._pools = pools
        self._finished = finished
        self._rows: dict[str, _Row] = {}

    def start(self) -> None:
        """Read workers' messages on failed tasks: tasks that are tried again have no transition that carries them."""
        self._handle: Callable[..., Any] = self._scheduler.stream_handlers["task-erred"]
        self._scheduler.stream_handlers["task-erred"] = self.on_erred

    def on_erred(self, *, key: Any, stimulus_id: str, **message: Any) -> None:
        """Note a failed task, then let the scheduler handle it."""
        try:
            self._note_failure(key, message)
        except Exception:
            logger.exception("gpudask: a worker's word on a failed task was not understood")
        self._handle(key=key, stimulus_id=stimulus_id, **message)

    def message(self, ws: WorkerState) -> str:
        """Return why the worker's device is unhealthy, `""` when it is not."""
        row = self._rows.get(ws.address)
        if row is None or row.failed < UNHEALTHY_AFTER or row.ended != self._own(ws):
            return ""
        return f"{row.failed} tasks in a row failed: {row.message}"

    def unhealthy(self) -> frozenset[str]:
        """Return the addresses of the workers with an unhealthy device."""
        workers = self._scheduler.workers
        return frozenset(address for address in self._rows if address in workers and self.message(workers[address]))

    def remove_worker(self, address: str) -> None:
        """Forget a worker that has gone."""
        self._rows.pop(address, None)

    def _note_failure(self, key: Any, message: dict[str, Any]) -> None:
        ts = self._scheduler.tasks.get(key)
        ws = ts.processing_on if ts is not None else None
        if ts is None or ws is None or ws.address != message.get("worker"):
            return  # a copy that failed, or a task that runs elsewhere by now
        restricted = bool(ts.resource_restrictions)
        self._finished.failed(ws.address, restricted=restricted)
        is_own = restricted or not self._pools.is_fenced(ws)
        self._count(ws, is_own=is_own, error=str(message.get("exception_text") or ""))

    def _count(self, ws: WorkerState, *, is_own: bool, error: str) -> None:
        own = self._own(ws)  # with this task, if it is its own
        row = self._rows.get(ws.address)
        if row is not None and row.ended != own - is_own:
            del self._rows[ws.address]  # one of its own tasks has succeeded since
            row = None
        if is_device_failure(error):
            self._rows[ws.address] = _Row(row.failed + 1 if row else 1, own, error[:MESSAGE_LENGTH])
        elif row is not None:
            row.ended = own  # another error says nothing about the device

    def _own(self, ws: WorkerState) -> int:
        """Return how many of its pool's own tasks ended there: plain tasks on a GPU worker may not touch the device."""
        if self._pools.is_fenced(ws):
            return self._finished.restricted.get(ws.address, 0)
        return self._finished.on(ws.address)
