"""Lets workers offer for a while what their pool does not: tasks of another pool fall back on them.

The worker itself has to be told (a task that it does not offer the resources for would close it), so the change is made
there, and the worker tells the scheduler. Taken back, what it has begun ends in peace and what it has not is recalled.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import cloudpickle

from . import offer_here
from .counts import requirement_of
from .names import pool_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from .counts import Requirement
    from .recall import Recall

logger = logging.getLogger("gpudask.preload")

RETRY_SECONDS = 1.0
GIVE_BACK_SECONDS = 0.02
STIMULUS = "gpudask-offers"

Amounts = dict[str, float]


class Offers:
    """What each pool's workers offer beyond their own, as the operator wants it. `changed` is told of each change."""

    def __init__(self, scheduler: Scheduler, recall: Recall, changed: Callable[[], None]) -> None:
        self.wanted: dict[str, Amounts] = {}  # pool -> resource -> amount for each worker
        self._scheduler = scheduler
        self._recall = recall
        self._changed = changed
        self._given: dict[str, Amounts] = {}  # worker's address -> what it offers because of us
        self._last: dict[str, Amounts] = {}  # the same, or what it last was: tasks that began there end there
        self._changes: dict[str, asyncio.Task[None]] = {}  # worker's address -> what brings it in line

    def stop(self) -> None:
        """End what is under way; the workers keep what they offer."""
        for change in self._changes.values():
            change.cancel()
        self._changes.clear()

    def accept(self, wanted: dict[str, Amounts]) -> None:
        """Take the whole word: pools that it does not name offer their own again."""
        if wanted == self.wanted:
            return
        self.wanted = wanted
        for ws in self._scheduler.workers.values():
            self._bring_in_line(ws)
        self._changed()

    def add_worker(self, address: str) -> None:
        """Give a worker that comes what its pool offers now."""
        self._bring_in_line(self._scheduler.workers[address])

    def forget(self, address: str) -> None:
        """Drop a worker that has gone."""
        self._given.pop(address, None)
        self._last.pop(address, None)
        change = self._changes.pop(address, None)
        if change is not None:
            change.cancel()

    def complete(self, entries: list[dict[str, Any]]) -> None:
        """Add to the entries of the demand how many of their tasks have begun where the offer is only lent."""
        begun: Counter[Requirement] = Counter()
        for address, amounts in self._last.items():
            ws = self._scheduler.workers.get(address)
            begun.update(_begun(ws, amounts) if ws is not None else ())
        for entry in entries:
            entry["lent"] = begun[tuple(sorted(entry["resources"].items()))]

    def _bring_in_line(self, ws: WorkerState) -> None:
        if ws.address not in self._changes and self._target(ws) != self._given.get(ws.address, {}):
            change = asyncio.create_task(self._change(ws))
            self._changes[ws.address] = change
            change.add_done_callback(functools.partial(self._on_changed, ws))

    def _on_changed(self, ws: WorkerState, change: asyncio.Task[None]) -> None:
        """Look again: something else may be wanted since the change's last look, or it failed."""
        if self._changes.get(ws.address) is not change:
            return  # the worker is gone, or another one has its address
        del self._changes[ws.address]
        if not change.cancelled() and change.exception() is not None:
            logger.error("gpudask: the offer of %s was not changed", ws.name, exc_info=change.exception())
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry, ws)
        else:
            self._retry(ws)

    def _retry(self, ws: WorkerState) -> None:
        if self._is_known(ws):
            self._bring_in_line(ws)

    def _target(self, ws: WorkerState) -> Amounts:
        """Return what the worker should offer because of us: its own offer of a resource stands."""
        given = self._given.get(ws.address, {})
        wanted = self.wanted.get(pool_of(ws.name), {})
        return {name: amount for name, amount in wanted.items() if name in given or not ws.resources.get(name)}

    async def _change(self, ws: WorkerState) -> None:
        """Change the worker until it offers what it should, whatever becomes wanted meanwhile."""
        while self._is_known(ws) and (target := self._target(ws)) != (given := self._given.get(ws.address, {})):
            if not await self._set(ws, dict.fromkeys(given, 0.0) | target):
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if not self._is_known(ws):
                return
            self._given[ws.address] = target
            self._last[ws.address] = target or given
            if target and ws in self._scheduler.running:
                recommendations = self._scheduler.bulk_schedule_unrunnable_after_adding_worker(ws)
                self._scheduler.transitions(recommendations, stimulus_id=STIMULUS)
            await self._give_back(ws, given.keys() - target.keys())

    async def _set(self, ws: WorkerState, amounts: Amounts) -> bool:
        message = {
            "op": "run_coroutine",
            "function": _by_value(offer_here.set_offer),
            "kwargs": cloudpickle.dumps({"resources": amounts}),
            "wait": True,
        }
        answers = await self._scheduler.broadcast(msg=message, workers=[ws.address], on_error="return")
        answer = answers.get(ws.address)
        if isinstance(answer, dict) and answer.get("status") == "OK":
            return True
        logger.warning("gpudask: %s did not change its offer to %s: %r", ws.name, amounts, answer)
        return False

    async def _give_back(self, ws: WorkerState, resources: set[str]) -> None:
        """Recall the tasks that want `resources` and have not begun there."""
        begun: set[TaskState] = set()
        while resources and self._is_known(ws) and not resources & self._target(ws).keys():
            tasks = [ts for ts in ws.processing if resources & (ts.resource_restrictions or {}).keys()]
            asked = [ts for ts in tasks if ts not in begun]
            if not asked:
                return
            begun |= await self._recall.recall(ws, asked)
            await asyncio.sleep(GIVE_BACK_SECONDS)  # one that work stealing asks for at this moment is seen next time

    def _is_known(self, ws: WorkerState) -> bool:
        return self._scheduler.workers.get(ws.address) is ws


def _begun(ws: WorkerState, amounts: Amounts) -> Iterator[Requirement]:
    """Yield the tasks on the worker that want the lent amounts, as many as those have room for: the others wait.

    Dask keeps a worker's tasks in the order in which it got them, and begins them so unless they have priorities.
    """
    room = dict(amounts)
    for ts in ws.processing:
        wanted = {name: amount for name, amount in (ts.resource_restrictions or {}).items() if name in room}
        if not wanted:
            continue
        if any(room[name] < amount for name, amount in wanted.items()):
            return
        for name, amount in wanted.items():
            room[name] -= amount
        yield requirement_of(ts)


def _by_value(function: Any) -> bytes:
    """Pickle a function with its module, so that the worker needs nothing of ours."""
    cloudpickle.register_pickle_by_value(offer_here)
    try:
        return bytes(cloudpickle.dumps(function))
    finally:
        cloudpickle.unregister_pickle_by_value(offer_here)
