"""Moves the results of which a leaving worker has the only copy: the workers copy them, none is computed again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import cloudpickle
from distributed.protocol.serialize import Serialized, deserialize

from . import hostsafe
from .places import places_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from .pools import Pools

logger = logging.getLogger("gpudask.preload")

RETRY_SECONDS = 10.0  # after which a copy that has not arrived is asked of another worker


def only_copies(ws: WorkerState, leaving: set[WorkerState]) -> list[TaskState]:
    """Return the results that would be lost with `ws`: every holder is leaving too. An actor is not a result."""
    return [ts for ts in ws.has_what if not ts.actor and (ts.who_has or set()) <= leaving]


@dataclass
class Evacuation:
    """What is on its way from one worker, and what has nowhere to go."""

    scheduler: Scheduler
    pools: Pools
    ws: WorkerState
    _asked: dict[Any, tuple[str, float]] = field(default_factory=dict)  # key -> the recipient's address, when
    _unsafe: dict[Any, str] = field(default_factory=dict)  # key -> "" or what it needs

    async def move(self, only: list[TaskState], leaving: set[WorkerState]) -> list[tuple[TaskState, str]]:
        """Ask other workers to copy the results; return those that have nowhere to go, with what they need."""
        staying = [ws for ws in self.scheduler.running if ws not in leaving]
        places = places_for(self.ws, staying, self.pools)
        if places.any_value:
            self._ask(only, places.any_value)
            return []
        if not places.host_safe:
            return [(ts, "") for ts in only]
        await self._examine(only)
        here = [ts for ts in only if ts in self.ws.has_what]  # examining took a while
        self._ask([ts for ts in here if self._unsafe.get(ts.key) == ""], places.host_safe)
        return [(ts, self._unsafe[ts.key]) for ts in here if self._unsafe.get(ts.key)]

    def _ask(self, results: Iterable[TaskState], recipients: frozenset[WorkerState]) -> None:
        """Ask the emptiest recipients, and another one where a copy has not come."""
        now = time.monotonic()
        running = [ws for ws in recipients if ws in self.scheduler.running]
        addresses = {ws.address for ws in running}
        load = {ws: ws.nbytes for ws in running}
        wanted: defaultdict[str, list[Any]] = defaultdict(list)
        for ts in results:
            address, asked = self._asked.get(ts.key, ("", 0.0))
            if address in addresses and now - asked < RETRY_SECONDS:
                continue
            candidates = [ws for ws in running if ws.address != address] or running
            if not candidates:
                continue
            ws = min(candidates, key=load.__getitem__)
            load[ws] += ts.get_nbytes()
            self._asked[ts.key] = ws.address, now
            wanted[ws.address].append(ts.key)
        for address, keys in wanted.items():
            self.scheduler.request_acquire_replicas(address, keys, stimulus_id=f"gpudask-evacuate-{now}")

    async def _examine(self, results: list[TaskState]) -> None:
        keys = [ts.key for ts in results if ts.key not in self._unsafe]
        if not keys:
            return
        message = {
            "op": "run_coroutine",
            "function": _by_value(hostsafe.examine),
            "kwargs": cloudpickle.dumps({"keys": keys}),
            "wait": True,
        }
        answers = await self.scheduler.broadcast(msg=message, workers=[self.ws.address], on_error="return")
        answer = answers.get(self.ws.address)
        if not isinstance(answer, dict) or answer.get("status") != "OK":
            logger.warning("gpudask: %s did not say what its results need: %r", self.ws.name, answer)
            await asyncio.sleep(RETRY_SECONDS / 10)
            return
        found = answer["result"]
        if isinstance(found, Serialized):
            found = deserialize(found.header, found.frames)  # type: ignore[no-untyped-call]
        self._unsafe.update(dict(found))


def _by_value(function: Any) -> bytes:
    """Pickle a function with its module, so that the worker needs nothing of ours."""
    cloudpickle.register_pickle_by_value(hostsafe)
    try:
        return bytes(cloudpickle.dumps(function))
    finally:
        cloudpickle.unregister_pickle_by_value(hostsafe)
