"""Workers whose device is sick: task after task fails there with a CUDA error that no further task will survive.

Names and meanings of the errors: CUDA Runtime API, `cudaError`, and CUDA Driver API, `CUresult`; those are named here
after which "the process must be terminated and relaunched", and those that say that the device itself has failed or
gone. An allocation that fails is neither: the next task may fit.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed.scheduler import Scheduler, WorkerState

    from .ended import Ended
    from .pools import Pools

logger = logging.getLogger("gpudask.preload")

SICK_AFTER = 3  # tasks in a row
WORDS = 200  # characters of an error that are told
LOOKED_AT = 4000  # characters of an error's text that are searched

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
_TEXTS = (
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
_SICK = re.compile(
    "|".join(
        [rf"cuda_?error_?{name.replace('_', '_?')}(?![a-z])" for name in _ERRORS] + [re.escape(text) for text in _TEXTS]
    ),
    re.IGNORECASE,
)
_OUT_OF_MEMORY = re.compile(r"out[ _]?of[ _]?memory|cudaErrorMemoryAllocation|bad_alloc", re.IGNORECASE)


def is_sick(error: str) -> bool:
    """Return whether the text of a task's error says that its process can use its device no more."""
    text = error[:LOOKED_AT]
    return _SICK.search(text) is not None and _OUT_OF_MEMORY.search(text) is None


@dataclass(slots=True)
class _Row:
    failed: int  # tasks in a row
    ended: int  # of the worker's own tasks when the last of them failed: more since then is a success
    words: str


class Sick:
    """One for a scheduler. It keeps one entry for each worker that fails at present."""

    def __init__(self, scheduler: Scheduler, pools: Pools, ended: Ended) -> None:
        self._scheduler = scheduler
        self._pools = pools
        self._ended = ended
        self._rows: dict[str, _Row] = {}

    def hook_in(self) -> None:
        """Read the workers' words on failed tasks: tasks that are tried again have no transition that carries them."""
        self._handle: Callable[..., Any] = self._scheduler.stream_handlers["task-erred"]
        self._scheduler.stream_handlers["task-erred"] = self.on_erred

    def on_erred(self, *, key: Any, stimulus_id: str, **message: Any) -> None:
        """Note a failed task, then let the scheduler handle it."""
        try:
            self._hear(key, message)
        except Exception:
            logger.exception("gpudask: a worker's word on a failed task was not understood")
        self._handle(key=key, stimulus_id=stimulus_id, **message)

    def words(self, ws: WorkerState) -> str:
        """Return why the worker is sick, `""` when it is not."""
        row = self._rows.get(ws.address)
        if row is None or row.failed < SICK_AFTER or row.ended != self._own(ws):
            return ""
        return f"{row.failed} tasks in a row failed: {row.words}"

    def forget(self, address: str) -> None:
        """Drop a worker that has gone."""
        self._rows.pop(address, None)

    def _hear(self, key: Any, message: dict[str, Any]) -> None:
        ts = self._scheduler.tasks.get(key)
        ws = ts.processing_on if ts is not None else None
        if ts is None or ws is None or ws.address != message.get("worker"):
            return  # a copy that failed, or a task that runs elsewhere by now
        restricted = bool(ts.resource_restrictions)
        self._ended.failed(ws.address, restricted=restricted)
        is_own = restricted or not self._pools.is_fenced(ws)
        self._note(ws, is_own=is_own, error=str(message.get("exception_text") or ""))

    def _note(self, ws: WorkerState, *, is_own: bool, error: str) -> None:
        own = self._own(ws)  # with this task, if it is its own
        row = self._rows.get(ws.address)
        if row is not None and row.ended != own - is_own:
            del self._rows[ws.address]  # one of its own tasks has succeeded since
            row = None
        if is_sick(error):
            self._rows[ws.address] = _Row(row.failed + 1 if row else 1, own, error[:WORDS])
        elif row is not None:
            row.ended = own  # another error says nothing about the device

    def _own(self, ws: WorkerState) -> int:
        """Return how many of its pool's own tasks ended there: plain tasks on a GPU worker may not touch the device."""
        return self._ended.restricted.get(ws.address, 0) if self._pools.is_fenced(ws) else self._ended.on(ws.address)
