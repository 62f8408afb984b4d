"""Offers: resources that workers lend beyond their pool's own for a while; other pools' tasks fall back on them.

The worker itself has to be changed (a task that it does not offer the resources for would close it), and tells the
scheduler so. When an offer ends, tasks that have begun end in peace, and those that have not are recalled.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from distributed import Status
from distributed.worker_state_machine import UnpauseEvent

from .part import Part
from .pools import pool_of
from .requirements import has_offer, requirement_of
from .workers import result_of, run_on_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from .desired import Desired
    from .drains.recall import Recall
    from .requirements import Requirement

logger = logging.getLogger("gpudask.preload")

RETRY_SECONDS = 1.0
RECALL_SECONDS = 0.1
LOOK_AT = 1_000  # tasks of a worker, to see which have begun
STIMULUS = "gpudask-offers"

Amounts = dict[str, float]


@dataclass
class _Loan:
    """What one worker lends: what it was told to offer beyond its own, and what it answered."""

    ws: WorkerState
    confirmed: Amounts | None  # what it lends by its own answer; None while that is not known
    offers: Amounts = field(default_factory=dict)  # how much it offers of that, by its own answer
    began: Amounts = field(default_factory=dict)  # what it lends, or last lent: tasks that began with that end there


class Offers(Part):
    """Reconciles what each pool's workers offer beyond their own with what the operator wants.

    The worker itself knows what it only lends. It is sent the whole again until it has confirmed it: an answer may be
    lost, or a message come late, when it has registered anew. `changed` is called after each change of what is wanted.
    """

    feature = "offers"
    attributes = ("running", "workers", "handlers")
    methods = MappingProxyType(
        {
            "add_resources": ("worker", "resources"),
            "broadcast": ("msg", "workers", "on_error"),
            "bulk_schedule_unrunnable_after_adding_worker": ("ws",),
            "transitions": ("recommendations", "stimulus_id"),
        }
    )
    depends_on = MappingProxyType({"retire": "without retire nobody takes back the tasks of an offer that ends"})

    def __init__(self, scheduler: Scheduler, recall: Recall, changed: Callable[[], None]) -> None:
        self.wanted: dict[str, Amounts] = {}  # pool -> resource -> amount for each worker
        self._pools_ever: set[str] = set()  # pools whose workers ever had to lend something
        self._scheduler = scheduler
        self._recall = recall
        self._changed = changed
        self._loans: dict[str, _Loan] = {}  # worker's address -> loan
        self._changes: dict[str, asyncio.Task[None]] = {}  # worker's address -> what reconciles it

    def start(self) -> None:
        """Follow workers' changes of what they offer."""
        handlers: Any = self._scheduler.handlers
        self._on_resources, handlers["set_resources"] = handlers["set_resources"], self.on_resources

    def stop(self) -> None:
        """End what is under way; the workers keep what they offer."""
        for change in self._changes.values():
            change.cancel()
        self._changes.clear()

    def apply(self, desired: Desired) -> dict[str, str]:
        """Let pools offer what the operator wants, whole: those that it does not name offer their own again."""
        self.lend(desired.offers)
        return {}

    def lend(self, wanted: dict[str, Amounts]) -> None:
        """Let workers offer, beyond their own, what is wanted of each pool."""
        if wanted == self.wanted:
            return
        self.wanted = wanted
        self._pools_ever |= wanted.keys()
        for ws in self._scheduler.workers.values():
            self._reconcile(ws)
        self._changed()

    def add_worker(self, ws: WorkerState) -> None:
        """Send a worker that comes what its pool lends now. If it comes back, it may lend something else."""
        if pool_of(ws.name) in self._pools_ever:
            self._loans[ws.address] = _Loan(ws, None)
            self._reconcile(ws)

    def remove_worker(self, address: str) -> None:
        """Forget a worker that has gone."""
        self._loans.pop(address, None)
        change = self._changes.pop(address, None)
        if change is not None:
            change.cancel()

    def on_resources(self, *, worker: str, **message: Any) -> Any:
        """Follow a worker's message on all that it offers: an earlier one may come late."""
        answer = self._on_resources(worker=worker, **message)
        ws = self._scheduler.workers.get(worker)
        if ws is not None:
            self._reconcile(ws)
        return answer

    def complete_demand(self, entries: list[dict[str, Any]]) -> None:
        """Add to the entries of the demand how many of their tasks have begun where the offer is only lent."""
        begun: Counter[Requirement] = Counter()
        for loan in self._loans.values():
            begun.update(_begun(loan.ws, loan.began))
        for entry in entries:
            entry["lent"] = begun[tuple(sorted(entry["resources"].items()))]

    def _reconcile(self, ws: WorkerState) -> None:
        if ws.address not in self._changes and not self._is_reconciled(ws):
            change = asyncio.create_task(self._change(ws))
            self._changes[ws.address] = change
            change.add_done_callback(functools.partial(self._on_changed, ws))

    def _on_changed(self, ws: WorkerState, change: asyncio.Task[None]) -> None:
        """Reconcile again: something else may be wanted by now, or the change failed."""
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
            self._reconcile(ws)

    def _target(self, ws: WorkerState) -> Amounts:
        return self.wanted.get(pool_of(ws.name), {})

    def _is_reconciled(self, ws: WorkerState) -> bool:
        loan, target = self._loans.get(ws.address), self._target(ws)
        if loan is None:
            return not target
        return loan.confirmed == target and all(ws.resources.get(name) == n for name, n in loan.offers.items())

    async def _change(self, ws: WorkerState) -> None:
        """Change the worker until it offers what it should, whatever becomes wanted meanwhile."""
        while self._is_known(ws) and not self._is_reconciled(ws):
            target = self._target(ws)
            loan = self._loans.setdefault(ws.address, _Loan(ws, {}))
            loan.confirmed, loan.began = None, target or loan.began
            offers = await self._run(ws, set_offer, lent=target, number=time.time_ns())
            if offers is None:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            offers = dict(offers)
            if not self._is_known(ws):
                return
            loan.confirmed, loan.offers = target, offers
            if offers and ws in self._scheduler.running:  # also of none: a task may ask for none
                recommendations = self._scheduler.bulk_schedule_unrunnable_after_adding_worker(ws)
                self._scheduler.transitions(recommendations, stimulus_id=STIMULUS)
            await self._recall_tasks(ws)
            while self._is_known(ws) and self._is_reconciled(ws):  # what waited behind tasks that were recalled
                if await self._run(ws, begin_waiting, stimulus_id=STIMULUS):
                    return
                await asyncio.sleep(RETRY_SECONDS)

    async def _run(self, ws: WorkerState, function: Any, **arguments: Any) -> Any:
        """Run one of our functions on a worker; return what it returns, None when that is not known."""
        answer = await run_on_worker(self._scheduler, ws, function, **arguments)
        if isinstance(answer, dict) and answer.get("status") == "OK":
            return result_of(answer)
        logger.warning("gpudask: %s did not do %s with %s: %r", ws.name, function.__name__, arguments, answer)
        return None

    async def _recall_tasks(self, ws: WorkerState) -> None:
        """Recall the tasks that want what the worker offers no more, and have not begun there."""

        def wants(ts: TaskState) -> bool:
            return not has_offer(ws, ts.resource_restrictions or {})

        answered = asyncio.Event()
        selection = self._recall.select(ws, wants, answered.set)
        try:
            while self._is_known(ws) and self._is_reconciled(ws):
                answered.clear()
                if self._recall.step(selection):
                    return
                waiting = asyncio.ensure_future(answered.wait())
                try:
                    # one that work stealing requests at this moment comes with the next step
                    await asyncio.wait([waiting], timeout=RECALL_SECONDS)
                finally:
                    waiting.cancel()
        finally:
            self._recall.stop(selection)

    def _is_known(self, ws: WorkerState) -> bool:
        return self._scheduler.workers.get(ws.address) is ws


def _begun(ws: WorkerState, amounts: Amounts) -> Iterator[Requirement]:
    """Yield the tasks on the worker that want the lent amounts, as many as those suffice for: the others wait.

    Dask keeps a worker's tasks in the order in which it got them, and begins them so unless they have priorities.
    """
    capacity = dict(amounts)
    for ts in itertools.islice(ws.processing, LOOK_AT if capacity else 0):
        requirement = requirement_of(ts)
        wanted = [(name, amount) for name, amount in requirement if name in capacity]
        if any(capacity[name] < amount for name, amount in wanted):
            return
        for name, amount in wanted:
            capacity[name] -= amount
        if wanted:
            yield requirement


# Sent to workers with this module, by `run_on_worker`: from here on nothing of this package may be used.


async def set_offer(lent: dict[str, float], number: int, dask_worker: Any) -> dict[str, float]:
    """Offer what is `lent`, and nothing else beyond the worker's own, and tell the scheduler.

    The worker remembers what is only lent, so its own offers stand, and a lent GPU is none for `gpudask.has_gpu`. What
    was sent before, and comes after something with a higher number, does nothing. Return how much the worker offers of
    everything that was or is lent.
    """
    before: dict[str, float] = getattr(dask_worker, "gpudask_lent", {})
    if number <= getattr(dask_worker, "gpudask_offer_number", -1):
        return {}
    dask_worker.gpudask_offer_number = number
    offered = dask_worker.state.total_resources
    now = {name: amount for name, amount in lent.items() if name in before or not offered.get(name)}
    dask_worker.gpudask_lent = now
    try:
        await dask_worker.set_resources(**dict.fromkeys(before, 0.0) | now)
    finally:
        await begin_waiting(f"gpudask-offer-{number}", dask_worker)
    return {name: offered[name] for name in before | now}


async def begin_waiting(stimulus_id: str, dask_worker: Any) -> bool:
    """Begin the tasks that wait and may begin now; return True.

    A worker looks at the first of those that wait for a resource, and only when a task comes or ends: not when there is
    more of the resource, and not when the first is taken from it.
    """
    if dask_worker.status == Status.running:
        dask_worker.handle_stimulus(UnpauseEvent(stimulus_id=stimulus_id))
    return True
