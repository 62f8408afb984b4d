"""Lets workers offer for a while what their pool does not: tasks of another pool fall back on them.

The worker itself has to be told (a task that it does not offer the resources for would close it), so the change is made
there, and the worker tells the scheduler. Taken back, what it has begun ends in peace and what it has not is recalled.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import cloudpickle
from distributed.protocol.serialize import Serialized, deserialize

from . import offer_here
from .counts import requirement_of
from .names import pool_of
from .slots import has_offer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from .counts import Requirement
    from .recall import Recall

logger = logging.getLogger("gpudask.preload")

RETRY_SECONDS = 1.0
GIVE_BACK_SECONDS = 0.1
LOOK_AT = 1_000  # tasks of a worker, to see which have begun
STIMULUS = "gpudask-offers"

Amounts = dict[str, float]


@dataclass
class _Loan:
    """What one worker was told to offer beyond its own, and what it said that it does."""

    ws: WorkerState
    told: Amounts | None  # what it was told to lend and said that it does; None while nobody knows
    offers: Amounts = field(default_factory=dict)  # how much it offers of that, as it said
    began: Amounts = field(default_factory=dict)  # what it lends, or last lent: tasks that began with that end there


class Offers:
    """What each pool's workers offer beyond their own, as the operator wants it. `changed` is told of each change.

    The worker itself knows what is only lent to it. It is told the whole anew until it has said that it does so: an
    answer may be lost, or what it was told come late, when it has registered anew.
    """

    def __init__(self, scheduler: Scheduler, recall: Recall, changed: Callable[[], None]) -> None:
        self.wanted: dict[str, Amounts] = {}  # pool -> resource -> amount for each worker
        self._ever: set[str] = set()  # pools whose workers were ever told to offer something
        self._scheduler = scheduler
        self._recall = recall
        self._changed = changed
        self._loans: dict[str, _Loan] = {}  # worker's address -> loan
        self._changes: dict[str, asyncio.Task[None]] = {}  # worker's address -> what brings it in line
        handlers: Any = scheduler.handlers
        self._on_resources, handlers["set_resources"] = handlers["set_resources"], self.on_resources

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
        self._ever |= wanted.keys()
        for ws in self._scheduler.workers.values():
            self._bring_in_line(ws)
        self._changed()

    def add_worker(self, ws: WorkerState) -> None:
        """Tell a worker that comes what its pool offers now. It may have been told something else, if it comes back."""
        if pool_of(ws.name) in self._ever:
            self._loans[ws.address] = _Loan(ws, None)
            self._bring_in_line(ws)

    def remove_worker(self, address: str) -> None:
        """Forget a worker that has gone."""
        self._loans.pop(address, None)
        change = self._changes.pop(address, None)
        if change is not None:
            change.cancel()

    def on_resources(self, *, worker: str, **message: Any) -> Any:
        """Follow a worker's word on all that it offers: one that was sent earlier may come late."""
        answer = self._on_resources(worker=worker, **message)
        ws = self._scheduler.workers.get(worker)
        if ws is not None:
            self._bring_in_line(ws)
        return answer

    def complete(self, entries: list[dict[str, Any]]) -> None:
        """Add to the entries of the demand how many of their tasks have begun where the offer is only lent."""
        begun: Counter[Requirement] = Counter()
        for loan in self._loans.values():
            begun.update(_begun(loan.ws, loan.began))
        for entry in entries:
            entry["lent"] = begun[tuple(sorted(entry["resources"].items()))]

    def _bring_in_line(self, ws: WorkerState) -> None:
        if ws.address not in self._changes and not self._is_in_line(ws):
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
        return self.wanted.get(pool_of(ws.name), {})

    def _is_in_line(self, ws: WorkerState) -> bool:
        loan, target = self._loans.get(ws.address), self._target(ws)
        if loan is None:
            return not target
        return loan.told == target and all(ws.resources.get(name) == n for name, n in loan.offers.items())

    async def _change(self, ws: WorkerState) -> None:
        """Change the worker until it offers what it should, whatever becomes wanted meanwhile."""
        while self._is_known(ws) and not self._is_in_line(ws):
            target = self._target(ws)
            loan = self._loans.setdefault(ws.address, _Loan(ws, {}))
            loan.told, loan.began = None, target or loan.began
            offers = await self._do(ws, offer_here.set_offer, lent=target, number=time.time_ns())
            if offers is None:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            offers = dict(offers)
            if not self._is_known(ws):
                return
            loan.told, loan.offers = target, offers
            if offers and ws in self._scheduler.running:  # also of none: a task may ask for none
                recommendations = self._scheduler.bulk_schedule_unrunnable_after_adding_worker(ws)
                self._scheduler.transitions(recommendations, stimulus_id=STIMULUS)
            await self._give_back(ws)
            while self._is_known(ws) and self._is_in_line(ws):  # what waited behind tasks that were recalled
                if await self._do(ws, offer_here.begin_waiting, stimulus_id=STIMULUS):
                    return
                await asyncio.sleep(RETRY_SECONDS)

    async def _do(self, ws: WorkerState, function: Any, **arguments: Any) -> Any:
        """Run one of our functions on a worker; return what it returns, None when that is not known."""
        message = {
            "op": "run_coroutine",
            "function": _by_value(function),
            "kwargs": cloudpickle.dumps(arguments),
            "wait": True,
        }
        answers = await self._scheduler.broadcast(msg=message, workers=[ws.address], on_error="return")
        answer = answers.get(ws.address)
        if isinstance(answer, dict) and answer.get("status") == "OK":
            result = answer["result"]
            if isinstance(result, Serialized):
                result = deserialize(result.header, result.frames)  # type: ignore[no-untyped-call]
            return result
        logger.warning("gpudask: %s did not do %s with %s: %r", ws.name, function.__name__, arguments, answer)
        return None

    async def _give_back(self, ws: WorkerState) -> None:
        """Recall the tasks that want what the worker offers no more, and have not begun there."""

        def wants(ts: TaskState) -> bool:
            return not has_offer(ws, ts.resource_restrictions or {})

        heard = asyncio.Event()
        taking = self._recall.take(ws, wants, heard.set)
        try:
            while self._is_known(ws) and self._is_in_line(ws):
                heard.clear()
                if self._recall.step(taking):
                    return
                hearing = asyncio.ensure_future(heard.wait())
                try:
                    # one that work stealing asks for at this moment is seen next time
                    await asyncio.wait([hearing], timeout=GIVE_BACK_SECONDS)
                finally:
                    hearing.cancel()
        finally:
            self._recall.stop(taking)

    def _is_known(self, ws: WorkerState) -> bool:
        return self._scheduler.workers.get(ws.address) is ws


def _begun(ws: WorkerState, amounts: Amounts) -> Iterator[Requirement]:
    """Yield the tasks on the worker that want the lent amounts, as many as those have room for: the others wait.

    Dask keeps a worker's tasks in the order in which it got them, and begins them so unless they have priorities.
    """
    room = dict(amounts)
    for ts in itertools.islice(ws.processing, LOOK_AT if room else 0):
        requirement = requirement_of(ts)
        wanted = [(name, amount) for name, amount in requirement if name in room]
        if any(room[name] < amount for name, amount in wanted):
            return
        for name, amount in wanted:
            room[name] -= amount
        if wanted:
            yield requirement


def _by_value(function: Any) -> bytes:
    """Pickle a function with its module, so that the worker needs nothing of ours."""
    cloudpickle.register_pickle_by_value(offer_here)
    try:
        return bytes(cloudpickle.dumps(function))
    finally:
        cloudpickle.unregister_pickle_by_value(offer_here)
