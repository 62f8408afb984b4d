"""The parts put together on a running scheduler. No decision is made here."""

from __future__ import annotations

import logging
import operator
import os
import time
import traceback
from importlib import metadata
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin

from .demand import Demand
from .desired import BadInputError, Desired, read_pools
from .durations import Durations
from .fence import Fence
from .hooks import missing_hooks
from .leaving import Leaving
from .offers import Offers
from .pinned import Pinned
from .pools import Pools
from .quiet import Quiet
from .rebalance import Rebalance
from .retire import Retire
from .routes import add_routes
from .sick import Sick
from .watch import Edges, Watch
from .workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed.scheduler import Scheduler, WorkerState

logger = logging.getLogger("gpudask.preload")

_matters_of_entry = operator.itemgetter("resources", "waiting", "unrunnable", "processing", "unknown")
# Of a worker's row all but `idle_seconds`, `detail` and `tasks_done`: they change by themselves or tell nothing new
_matters_of_row = operator.itemgetter(
    *("name", "address", "pool", "status", "nthreads", "resources", "processing", "own", "blockers"),
    *("held_keys", "held_bytes", "retiring", "sick"),
)


class Preload(SchedulerPlugin):
    """Everything inside one scheduler, and the answers of its routes.

    It is our only plugin, and hands on to the parts: distributed calls each plugin at each transition.
    """

    name = "gpudask"

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.features = missing_hooks(scheduler)
        self.desired_version = ""
        self.pools = Pools(*_first_pools())
        self.watch = Watch(self._look, self.answer)
        self.pinned = Pinned(scheduler)
        self.demand = Demand(scheduler, self.pools, Durations(self.pools), self.watch, self.pinned)
        self.quiet = Quiet(scheduler)
        self.sick = Sick(scheduler, self.pools, self.demand.ended)
        self.workers = Workers(scheduler, self.pools, self.demand, self.sick, self.pinned)
        self.fence: Fence | None = None
        self.retire: Retire | None = None
        self.leaving: Leaving | None = None
        self.offers: Offers | None = None
        self.rebalance: Rebalance | None = None
        self._told: dict[str, Any] = {}  # the answer that made the latest version
        self._fingerprint: Any = None  # of it: what it says without what changes by itself

    def hook_in(self) -> None:
        """Hook in, feature by feature: one that fails is off, and the others work."""
        self._start("demand", self._start_demand)
        self._start("fence", self._start_fence)
        self._start("retire", self._start_retire)
        self._start("offers", self._start_offers)
        self._start("sick", self.sick.hook_in)
        self._start("rebalance", self._start_rebalance)
        self.scheduler.add_plugin(self)
        self.watch.touch()

    def stop(self) -> None:
        """Leave the scheduler in peace: it is closing."""
        self.demand.stop()
        self.workers.stop()
        if self.rebalance:
            self.rebalance.stop()
        if self.leaving:
            self.leaving.stop()
        if self.retire:
            self.retire.stop()
        if self.offers:
            self.offers.stop()

    @property
    def version(self) -> str:
        """Return the version that a poll has seen, or not."""
        return f"{self.scheduler.id}/{self.watch.counter}"

    def accept(self, desired: Desired) -> dict[str, str]:
        """Do what the operator wants; return pod -> why, for those that may not leave now."""
        self.pools.gpu = desired.gpu_pools
        if desired.pools != self.pools.accepts:
            self._change_pools(desired.pools)
        if self.leaving:
            refused = self.leaving.accept(desired.retiring)
        else:
            refused = {wish.pod: f"retire is off: {self.features['retire']}" for wish in desired.retiring}
        if self.offers:
            self.offers.accept(desired.offers)
        self.desired_version = desired.version
        self.watch.ring()
        return refused

    async def wait(self, pod: str, caller: str) -> str:
        """Return why the pod may end, once it may; where nothing can be drained it has nothing to wait for."""
        return await self.leaving.wait(pod, caller) if self.leaving else f"retire is off: {self.features['retire']}"

    def answer(self) -> dict[str, Any]:
        """Return the body of the demand route, as things are now: O(changed tasks + workers)."""
        demand, ignored, workers = self._demand(), self._ignored(), self._workers()
        fingerprint = self._fingerprint_of(demand, ignored, workers)
        if fingerprint != self._fingerprint:
            self._fingerprint = fingerprint
            self.watch.new_version()
        works = bool(demand or ignored or self.demand.is_behind)
        self._told = {
            "version": self.version,
            "scheduler_id": self.scheduler.id,
            "desired_version": self.desired_version,
            "features": self._features(),
            "offers": self.offers.wanted if self.offers else {},
            "tasks": len(self.scheduler.tasks),
            "idle_seconds": self.quiet.seconds(time.monotonic(), works=works),
            "demand": demand,
            "ignored": ignored,
            "workers": workers,
        }
        return self._told

    def news(self) -> dict[str, Any]:
        """Return the answer that made the latest version, for a poll that was woken by it a moment ago."""
        return self._told if self._told.get("version") == self.version else self.answer()

    def health(self) -> dict[str, Any]:
        """Return the body of the health route."""
        return {"distributed": metadata.version("distributed"), "features": self._features(), "error": ""}

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Tell at once that a worker has come."""
        ws = scheduler.workers[worker]
        if self.fence:
            self.fence.forget()
        if self.retire:
            self.retire.add_worker(ws)
        if self.offers:
            self.offers.add_worker(ws)
        self.watch.ring()

    def remove_worker(self, scheduler: Scheduler, worker: str, **_kwargs: Any) -> None:  # noqa: ARG002
        """Tell at once that a worker has gone."""
        if self.fence:
            self.fence.remove_worker(worker)
        if self.retire:
            self.retire.remove_worker(worker)
        if self.leaving:
            self.leaving.remove_worker(worker)
        if self.offers:
            self.offers.remove_worker(worker)
        self.demand.ended.forget(worker)
        self.sick.forget(worker)
        self.watch.ring()

    def restart(self, scheduler: Scheduler) -> None:  # noqa: ARG002
        """Follow `Scheduler.restart`, which forgets all tasks."""
        self.demand.restart()

    def _start(self, feature: str, start: Callable[[], None]) -> None:
        if self.features[feature]:
            logger.warning("gpudask: %s is off: %s", feature, self.features[feature])
            return
        try:
            start()
        except Exception:
            logger.exception("gpudask: %s is off", feature)
            self.features[feature] = traceback.format_exc()

    def _features(self) -> dict[str, str]:
        """Return why each is off; one that fails at work is as good as off."""
        trouble = self.rebalance.trouble if self.rebalance else ""
        return {**self.features, "rebalance": self.features["rebalance"] or trouble}

    def _change_pools(self, accepts: dict[str, str]) -> None:
        if self.fence:
            self.fence.change(accepts)
        else:
            self.pools.accepts = accepts

    def _start_demand(self) -> None:
        self.demand.hook_in()
        self.transition = self.demand.transition  # type: ignore[method-assign, assignment]  # without a call in between

    def _start_fence(self) -> None:
        self.fence = Fence(self.scheduler, self.pools)
        self.fence.hook_in()

    def _start_retire(self) -> None:
        if self.features["demand"]:
            self.features["retire"] = "without demand nobody knows which workers are idle"
            return
        self.retire = Retire(
            self.scheduler, self.workers, self.watch, pools=self.pools, pinned=self.pinned, fence=self.fence
        )
        self.retire.hook_in()
        self.leaving = Leaving(self.scheduler, self.retire.accept, self.retire.state_of)

    def _start_offers(self) -> None:
        if self.retire is None:
            self.features["offers"] = "without retire nobody takes back the tasks of an offer that ends"
            return
        self.offers = Offers(self.scheduler, self.retire.recall, self.watch.ring)

    def _start_rebalance(self) -> None:
        if self.features["demand"]:
            self.features["rebalance"] = "without demand nobody knows which tasks wait"
            return
        self.rebalance = Rebalance(self.scheduler, self.demand, self.watch, self._is_welcome)
        self.rebalance.hook_in()

    def _is_welcome(self, ws: WorkerState) -> bool:
        """Return whether a worker should get more work: one with a sick device fails all it gets, and looks idle."""
        return not self.sick.words(ws) and not (self.retire and self.retire.state_of(ws))

    def _look(self) -> Edges:
        now = time.monotonic()
        return {"busy": self.workers.follow(now), "tasks": bool(self.scheduler.tasks), **self.demand.follow(now)}

    def _demand(self) -> list[dict[str, Any]]:
        entries = [] if self.features["demand"] else self.demand.entries(time.monotonic())
        if self.offers:
            self.offers.complete(entries)
        return entries

    def _ignored(self) -> list[dict[str, Any]]:
        return [] if self.features["demand"] else self.demand.ignored()

    def _workers(self) -> list[dict[str, Any]]:
        rows = self.workers.rows(time.monotonic())
        for row in rows:
            if self.retire:
                self.retire.complete(row)
        return rows

    def _fingerprint_of(
        self, demand: list[dict[str, Any]], ignored: list[dict[str, Any]], workers: list[dict[str, Any]]
    ) -> Any:
        """Return the answer without what grows by itself. It is only compared, never hashed."""
        idle_since = [self.workers.idle_since(row["address"]) for row in workers]
        news = self.demand.look_ahead.news, bool(self._features()["rebalance"])
        return (
            (self.desired_version, bool(self.scheduler.tasks), news, [entry["why"] for entry in ignored]),
            [_matters_of_entry(entry) for entry in demand],
            idle_since,
            [_matters_of_row(row) for row in workers],
        )


def _first_pools() -> tuple[dict[str, str], frozenset[str]]:
    """Return the pools that stand until the operator's first word. A bad file is no reason to stop the scheduler."""
    path = os.environ.get("GPUDASK_POOLS_FILE", "")
    try:
        return read_pools(path) if path else ({}, frozenset())
    except BadInputError as error:
        logger.warning("gpudask: %s; no pool is fenced until the operator speaks", error)
        return {}, frozenset()


async def install(scheduler: Scheduler) -> Preload:
    """Start everything on a scheduler that listens already."""
    preload = Preload(scheduler)
    preload.hook_in()
    add_routes(preload)
    return preload
