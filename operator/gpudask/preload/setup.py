"""The parts put together on a running scheduler. No decision is made here."""

from __future__ import annotations

import logging
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
from .pools import Pools
from .retire import Retire
from .routes import add_routes
from .watch import Edges, Watch
from .workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from distributed.scheduler import Scheduler

logger = logging.getLogger("gpudask.preload")

UNTIMED = {"idle_seconds", "detail"}  # of a worker's row: what changes by itself, and what is for people


class Preload(SchedulerPlugin):
    """Everything inside one scheduler, and the answers of its routes."""

    name = "gpudask"

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.features = missing_hooks(scheduler)
        self.desired_version = ""
        self.pools = Pools(_first_pools())
        self.watch = Watch(self._look, self._fingerprint)
        self.demand = Demand(scheduler, Durations(self.pools), self.watch.touch)
        self.workers = Workers(scheduler, self.pools, self.demand)
        self.fence: Fence | None = None
        self.retire: Retire | None = None

    def hook_in(self) -> None:
        """Hook in, feature by feature: one that fails is off, and the others work."""
        self._start("demand", self._start_demand)
        self._start("fence", self._start_fence)
        self._start("retire", self._start_retire)
        self.scheduler.add_plugin(self)
        self.watch.touch()

    def stop(self) -> None:
        """Leave the scheduler in peace: it is closing."""
        if self.retire:
            self.retire.stop()

    @property
    def version(self) -> str:
        """Return the version that a poll has seen, or not."""
        return f"{self.scheduler.id}/{self.watch.counter}"

    def accept(self, desired: Desired) -> dict[str, str]:
        """Do what the operator wants; return pod -> why, for those that may not leave now."""
        if desired.pools != self.pools.accepts:
            self._change_pools(desired.pools)
        if self.retire:
            refused = self.retire.accept(desired.retiring)
        else:
            refused = {wish.pod: f"retire is off: {self.features['retire']}" for wish in desired.retiring}
        self.desired_version = desired.version
        self.watch.ring()
        return refused

    def answer(self) -> dict[str, Any]:
        """Return the body of the demand route."""
        self.watch.settle()
        return {
            "version": self.version,
            "scheduler_id": self.scheduler.id,
            "desired_version": self.desired_version,
            "features": self.features,
            "tasks": len(self.scheduler.tasks),
            "demand": self._demand(),
            "workers": self._workers(),
        }

    def health(self) -> dict[str, Any]:
        """Return the body of the health route."""
        return {"distributed": metadata.version("distributed"), "features": self.features, "error": ""}

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:  # noqa: ARG002 (called by keyword)
        """Tell at once that a worker has come."""
        if self.fence:
            self.fence.forget()
        self.watch.ring()

    def remove_worker(self, scheduler: Scheduler, worker: str, **_kwargs: Any) -> None:  # noqa: ARG002
        """Tell at once that a worker has gone."""
        if self.fence:
            self.fence.forget()
        self.watch.ring()

    def _start(self, feature: str, start: Callable[[], None]) -> None:
        if self.features[feature]:
            logger.warning("gpudask: %s is off: %s", feature, self.features[feature])
            return
        try:
            start()
        except Exception:
            logger.exception("gpudask: %s is off", feature)
            self.features[feature] = traceback.format_exc()

    def _change_pools(self, accepts: dict[str, str]) -> None:
        if self.fence:
            self.fence.change(accepts)
        else:
            self.pools.accepts = accepts

    def _start_demand(self) -> None:
        self.demand.hook_in()

    def _start_fence(self) -> None:
        self.fence = Fence(self.scheduler, self.pools)
        self.fence.hook_in()

    def _start_retire(self) -> None:
        if self.features["demand"]:
            self.features["retire"] = "without demand nobody knows which workers are idle"
            return
        self.retire = Retire(self.scheduler, self.pools, self.workers, self.demand, self.watch)
        self.retire.hook_in()

    def _look(self) -> Edges:
        now = time.monotonic()
        return {"busy": self.workers.follow(now), "tasks": bool(self.scheduler.tasks), **self.demand.follow(now)}

    def _demand(self) -> list[dict[str, Any]]:
        return [] if self.features["demand"] else self.demand.entries(time.monotonic())

    def _workers(self) -> list[dict[str, Any]]:
        rows = self.workers.rows(time.monotonic())
        for row in rows:
            if self.retire:
                self.retire.complete(row)
        return rows

    def _fingerprint(self) -> Hashable:
        """Return the answer without what grows by itself."""
        demand = [
            (*entry["resources"].items(), entry["waiting"], entry["unrunnable"], entry["processing"], entry["unknown"])
            for entry in self._demand()
        ]
        workers = [
            [self.workers.idle_since(row["address"]), *(value for key, value in row.items() if key not in UNTIMED)]
            for row in self._workers()
        ]
        return repr((self.desired_version, bool(self.scheduler.tasks), demand, workers))


def _first_pools() -> dict[str, str]:
    """Return the pools that stand until the operator's first word. A bad file is no reason to stop the scheduler."""
    path = os.environ.get("GPUDASK_POOLS_FILE", "")
    try:
        return read_pools(path) if path else {}
    except BadInputError as error:
        logger.warning("gpudask: %s; no pool is fenced until the operator speaks", error)
        return {}


async def install(scheduler: Scheduler) -> Preload:
    """Start everything on a scheduler that listens already."""
    preload = Preload(scheduler)
    preload.hook_in()
    add_routes(preload)
    return preload
