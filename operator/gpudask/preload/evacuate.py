"""Moves the results of which a leaving worker has the only copy: the workers copy them, none is computed again."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import cloudpickle
from distributed.protocol.serialize import Serialized, deserialize

from . import hostsafe
from .places import places_for
from .transfers import Transfers, backoff_seconds, plain_words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from .pools import Pools

logger = logging.getLogger("gpudask.preload")

EXAMINE_SECONDS = 60.0  # a worker that has not said by then what its values need is asked again
EXAMINATIONS = 3  # without an answer: then people are told


def only_copies(ws: WorkerState, leaving: set[WorkerState]) -> list[TaskState]:
    """Return the results that would be lost with `ws`: every holder is leaving too. An actor is not a result."""
    return [ts for ts in ws.has_what if not ts.actor and (ts.who_has or set()) <= leaving]


@dataclass(frozen=True)
class Left:
    """The results that are not on their way, each with words: what it needs, or why its transfers fail."""

    nowhere: list[tuple[TaskState, str]] = field(default_factory=list)
    unmovable: list[tuple[TaskState, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.nowhere) + len(self.unmovable)


class Evacuation:
    """What is on its way from one worker, and what has nowhere to go or cannot be moved."""

    def __init__(self, scheduler: Scheduler, pools: Pools, ws: WorkerState) -> None:
        self._scheduler = scheduler
        self._pools = pools
        self._ws = ws
        self._unsafe: dict[Any, str] = {}  # key -> "" or what it needs
        self._examined_in_vain = 0
        self._examine_after = 0.0
        self._examine_trouble = ""
        self.transfers = Transfers(self._ask)
        self.look_seconds = 0.0  # what the last look at the transfers took

    async def move(self, only: list[TaskState], leaving: set[WorkerState]) -> Left:
        """Let other workers copy the results as far as they can; return what stays for now."""
        staying = [ws for ws in self._scheduler.running if ws not in leaving]
        places = places_for(self._ws, staying, self._pools)
        if places.any_value:
            return self._transfer(only, places.any_value, [])
        if not places.host_safe:
            return Left(nowhere=[(ts, "") for ts in only])
        await self._examine(only)
        here = [ts for ts in only if ts in self._ws.has_what]  # examining took a while
        nowhere = [(ts, self._unsafe[ts.key]) for ts in here if self._unsafe.get(ts.key)]
        return self._transfer([ts for ts in here if self._unsafe.get(ts.key) == ""], places.host_safe, nowhere, here)

    def _transfer(
        self,
        movable: list[TaskState],
        recipients: frozenset[WorkerState],
        nowhere: list[tuple[TaskState, str]],
        here: Iterable[TaskState] = (),
    ) -> Left:
        now = time.monotonic()
        running = {ws.address: ws.nbytes for ws in recipients if ws in self._scheduler.running}
        wanted = {ts.key: ts.get_nbytes() for ts in movable}
        self.transfers.step(wanted, running, self._scheduler.workers, now)
        self.look_seconds = time.monotonic() - now
        stuck = self.transfers.stuck(now)
        unmovable = [(ts, stuck[ts.key]) for ts in movable if ts.key in stuck]
        if self._examined_in_vain >= EXAMINATIONS:
            unmovable += [(ts, self._examine_trouble) for ts in here if ts.key not in self._unsafe]
        return Left(nowhere, unmovable)

    def _ask(self, address: str, keys: list[Any]) -> None:
        self._scheduler.request_acquire_replicas(address, keys, stimulus_id=f"gpudask-evacuate-{time.monotonic()}")

    async def _examine(self, results: list[TaskState]) -> None:
        """Find out what the results need, where that is not known yet."""
        keys = [ts.key for ts in results if ts.key not in self._unsafe]
        if not keys or time.monotonic() < self._examine_after:
            return
        message = {
            "op": "run_coroutine",
            "function": _by_value(hostsafe.examine),
            "kwargs": cloudpickle.dumps({"keys": keys}),
            "wait": True,
        }
        broadcast = self._scheduler.broadcast(msg=message, workers=[self._ws.address], on_error="return")
        asked = asyncio.ensure_future(broadcast)
        try:
            # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the answer.
            await asyncio.wait([asked], timeout=EXAMINE_SECONDS)
            answers = asked.result() if asked.done() else {}
        finally:
            asked.cancel()
        answer = answers.get(self._ws.address, f"no answer within {EXAMINE_SECONDS:.0f} s")
        if not isinstance(answer, dict) or answer.get("status") != "OK":
            self._not_examined(answer)
            return
        found = answer["result"]
        if isinstance(found, Serialized):
            found = deserialize(found.header, found.frames)  # type: ignore[no-untyped-call]
        self._examined_in_vain = 0
        self._unsafe.update(dict(found))

    def _not_examined(self, answer: Any) -> None:
        said = plain_words(answer.get("exception_text", "")) if isinstance(answer, dict) else str(answer)
        logger.warning("gpudask: %s did not say what its results need: %s", self._ws.name, said)
        self._examined_in_vain += 1
        self._examine_after = time.monotonic() + backoff_seconds(self._examined_in_vain)
        self._examine_trouble = f"the worker does not say what they need: {said[:150]}"


def _by_value(function: Any) -> bytes:
    """Pickle a function with its module, so that the worker needs nothing of ours."""
    cloudpickle.register_pickle_by_value(hostsafe)
    try:
        return bytes(cloudpickle.dumps(function))
    finally:
        cloudpickle.unregister_pickle_by_value(hostsafe)
