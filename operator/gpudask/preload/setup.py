"""The preload as a scheduler plugin: its parts put together and called, and the answers of its routes.

No decision is made here.
"""

from __future__ import annotations

import logging
import operator
import os
import time
import traceback
from importlib import metadata
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin

from .busy_time import BusyTime
from .clients import Clients
from .demand import Demand, IdleTime
from .desired import BadInputError, Desired, read_pools
from .device_health import DeviceHealth
from .drains.blockers import Actors, Pinned
from .drains.retirement import Retirement
from .drains.termination import Termination
from .fence import Fence
from .graphs.device_results import DeviceResults
from .graphs.intake import Graphs
from .history import History
from .listeners import Listeners
from .offers import Offers
from .part import Part, why_off
from .performance_report import PerformanceReport
from .pools import Pools
from .rebalance import Rebalance
from .routes import add_routes
from .watch import BUSY, Edges, Watch
from .workers import Workers

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, WorkerState

logger = logging.getLogger("gpudask.preload")
_DIGITS = 18  # of a version's counter, at most

_compared_of_entry = operator.itemgetter("resources", "waiting", "unrunnable", "processing", "unknown")
# Of a worker's row all but `idle_seconds`, `detail`, `tasks_done`, `busy_seconds` and `owners`: they change by
# themselves or add nothing
_compared_of_row = operator.itemgetter(
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
        self.desired_version = ""
        accepts, gpu, listen = _initial_pools()
        self.pools = Pools(accepts, gpu)
        self.watch = Watch(self._edges, self.answer)
        self.pinned, self.actors = Pinned(scheduler), Actors(scheduler)
        self.idle_time = IdleTime(scheduler)
        self.busy_time = BusyTime(scheduler, self.pools)
        device_results = DeviceResults()
        self.demand = Demand(
            scheduler,
            self.pools,
            self.watch,
            self.pinned,
            self.busy_time,
            actors=self.actors,
            device_results=device_results,
        )
        self.device_health = DeviceHealth(scheduler, self.pools, self.demand.finished)
        self.workers = Workers(
            scheduler, self.pools, self.demand, self.device_health, pinned=self.pinned, actors=self.actors
        )
        self.fence = Fence(scheduler, self.pools)
        self.retirement = Retirement(
            scheduler,
            self.workers,
            self.watch,
            pools=self.pools,
            pinned=self.pinned,
            actors=self.actors,
            fence=self.fence,
        )
        self.termination = Termination(scheduler, self.retirement.retire, self.retirement.state_of)
        self.offers = Offers(scheduler, self.retirement.recall, self.watch.publish_now)
        self.rebalance = Rebalance(scheduler, self.demand, self.watch, self._may_get_work)
        self.clients = Clients(scheduler)
        self.history = History(scheduler)
        self.report = PerformanceReport(scheduler)
        self.listeners = Listeners(scheduler, listen, self.watch.publish_now)
        self.graphs = Graphs(scheduler, self.pools, self.watch, device_results, self._may_get_work)
        self._off: dict[str, str] = {}  # feature -> why it is off since the start, "" while it is on
        self._parts: list[Part] = []  # that are on, in the order in which they were started
        self._answer: dict[str, Any] = {}  # that made the latest version
        self._compared: Any = None  # of it: what it says without what changes by itself

    def start_parts(self) -> None:
        """Start part by part: one that cannot work is off, with the reason, and the others work."""
        graphs = [self.graphs] if self.graphs.is_wanted() else []
        for part in (
            self.workers,
            self.demand,
            self.busy_time,
            self.fence,
            self.retirement,
            self.termination,
            self.offers,
            self.device_health,
            self.rebalance,
            self.clients,
            self.history,
            self.report,
            self.listeners,
            *graphs,
        ):
            self._start(part)
        if not self._off[self.demand.feature]:
            # without a call in between
            self.transition = self.demand.transition  # type: ignore[method-assign, assignment]
        self.scheduler.add_plugin(self)
        self.watch.touch()

    def stop(self) -> None:
        """Stop all parts: the scheduler closes."""
        for part in reversed(self._parts):
            part.stop()

    @property
    def version(self) -> str:
        """The version of the answer, which a poll names as `seen`."""
        return f"{self.scheduler.id}/{self.watch.counter}"

    def counter_of(self, version: str) -> int | None:
        """Return the watch's counter of a version; None where it is none of this scheduler's."""
        scheduler_id, _, counter = version.rpartition("/")
        is_ours = scheduler_id == self.scheduler.id and counter.isdecimal() and len(counter) <= _DIGITS
        return int(counter) if is_ours else None

    @property
    def features(self) -> dict[str, str]:
        """Feature -> why it is off, or what it fails with at present; `""` when it works."""
        errors = {part.feature: part.error for part in self._parts}
        return {feature: reason or errors[feature] for feature, reason in self._off.items()}

    def apply(self, desired: Desired) -> dict[str, str]:
        """Do what the operator wants; return pod -> reason, for those that may not leave now."""
        self.pools.gpu = desired.gpu_pools
        self.fence.change(desired.pools)
        refused = {}
        if off := self._off[self.retirement.feature]:
            refused = {request.pod: f"retire is off: {off}" for request in desired.retiring}
        for part in self._parts:
            refused |= part.apply(desired)
        self.desired_version = desired.version
        self.watch.publish_now()
        return refused

    async def wait_until_drained(self, pod: str, caller: str) -> str:
        """Return why the pod may end, once it may; where nothing can be drained it has nothing to wait for."""
        off = self._off[self.retirement.feature]
        return f"retire is off: {off}" if off else await self.termination.wait(pod, caller)

    def answer(self) -> dict[str, Any]:
        """Return the body of the demand route, as things are now: O(changed tasks + workers)."""
        now = time.monotonic()
        demand, ignored, workers = self.demand.entries(now), self.demand.ignored(), self.workers.rows(now)
        for part in self._parts:
            part.complete_demand(demand)
            part.complete_workers(workers)
        clients = self.clients.answer(now) if self.clients in self._parts else None
        connected = bool(clients and clients["connected"])
        compared = self._compared_of(demand, ignored, workers), connected, self.history.erred
        if compared != self._compared:
            self._compared = compared
            self.watch.new_version()
        is_busy = bool(demand or ignored or self.demand.is_behind)
        self._answer = {
            "version": self.version,
            "scheduler_id": self.scheduler.id,
            "desired_version": self.desired_version,
            "features": self.features,
            "offers": self.offers.wanted,
            "listeners": self.listeners.answer(),
            "tasks": len(self.scheduler.tasks) + self.graphs.waiting,
            "idle_seconds": self.idle_time.seconds(now, is_busy=is_busy),
            "clients": clients,
            "demand": demand,
            "ignored": ignored,
            "erred": self.history.erred,
            "workers": workers,
        }
        return self._answer

    def latest_answer(self) -> dict[str, Any]:
        """Return the answer that made the latest version, for a poll that was woken by it a moment ago."""
        return self._answer if self._answer.get("version") == self.version else self.answer()

    def history_answer(self) -> dict[str, Any] | None:
        """Return the body of the history route; None where that part is off."""
        return self.history.answer(time.monotonic()) if self.history in self._parts else None

    async def write_report(self, name: str) -> dict[str, Any]:
        """Write a performance report; return where it is, or why there is none."""
        off = self._off[self.report.feature]
        return {"path": "", "bytes": 0, "why": f"report is off: {off}"} if off else await self.report.write(name)

    def health(self) -> dict[str, Any]:
        """Return the body of the health route."""
        return {"distributed": metadata.version("distributed"), "features": self.features, "error": ""}

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Hand on to the parts, and publish at once, that a worker has come."""
        ws = scheduler.workers[worker]
        for part in self._parts:
            part.add_worker(ws)
        self.watch.publish_now()

    def remove_worker(self, scheduler: Scheduler, worker: str, **_kwargs: Any) -> None:  # noqa: ARG002
        """Hand on to the parts, and publish at once, that a worker has gone."""
        for part in self._parts:
            part.remove_worker(worker)
        self.watch.publish_now()

    def add_client(self, scheduler: Scheduler, client: str) -> None:  # noqa: ARG002
        """Note that a client has come, and publish at once where there was none."""
        if self.clients.add(client):
            self.watch.publish_now()

    def remove_client(self, scheduler: Scheduler, client: str) -> None:  # noqa: ARG002
        """Note that a client has gone, and publish at once where it was the last one."""
        self.graphs.remove_client(client)
        if self.clients.remove(client):
            self.watch.publish_now()

    def restart(self, scheduler: Scheduler) -> None:  # noqa: ARG002
        """Follow `Scheduler.restart`, which forgets all tasks."""
        for part in self._parts:
            part.restart()

    def _start(self, part: Part) -> None:
        off = why_off(part, self.scheduler, self._off)
        if off:
            logger.warning("gpudask: %s is off: %s", part.feature or type(part).__name__, off)
        else:
            self._parts.append(part)  # before it starts: half a part must follow workers, too
            try:
                part.start()
            except Exception:
                logger.exception("gpudask: %s is off", part.feature)
                off = traceback.format_exc()
        if part.feature:
            self._off[part.feature] = off

    def _may_get_work(self, ws: WorkerState) -> bool:
        """Return whether a worker should get more work: one with a sick device fails all it gets, and looks idle."""
        return not self.device_health.message(ws) and not self.retirement.state_of(ws)

    def _has_tasks(self) -> bool:
        """Return whether anything would be lost with the scheduler."""
        return bool(self.scheduler.tasks or self.graphs.waiting)

    def _edges(self) -> Edges:
        now = time.monotonic()
        busy, workers = self.workers.follow(now), self.scheduler.workers
        with_gpus = frozenset(address for address in busy if self.pools.has_gpu(workers[address]))
        return {
            BUSY: busy - with_gpus,
            "busy GPUs": with_gpus,
            "sick": self.device_health.unhealthy(),
            "tasks": self._has_tasks(),
            **self.demand.follow(now),
        }

    def _compared_of(
        self, demand: list[dict[str, Any]], ignored: list[dict[str, Any]], workers: list[dict[str, Any]]
    ) -> Any:
        """Return the answer without what grows by itself. It is only compared, never hashed."""
        idle_since = [self.workers.idle_since(row["address"]) for row in workers]
        features = [bool(reason) for reason in self.features.values()]
        changes = self.demand.look_ahead.changes, features, self.listeners.answer()
        return (
            (self.desired_version, self._has_tasks(), changes, [entry["why"] for entry in ignored]),
            [_compared_of_entry(entry) for entry in demand],
            idle_since,
            [_compared_of_row(row) for row in workers],
        )


def _initial_pools() -> tuple[dict[str, str], dict[str, dict[str, float]], dict[str, int]]:
    """Return the pools that stand until the operator posts its own. A bad file is no reason to stop the scheduler."""
    path = os.environ.get("GPUDASK_POOLS_FILE", "")
    try:
        return read_pools(path) if path else ({}, {}, {})
    except BadInputError as error:
        logger.warning("gpudask: %s; no pool is fenced until the operator speaks", error)
        return {}, {}, {}


async def install(scheduler: Scheduler) -> Preload:
    """Start everything on a scheduler that listens already."""
    preload = Preload(scheduler)
    preload.start_parts()
    add_routes(preload)
    return preload
