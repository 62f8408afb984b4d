"""The fence: which worker may run which task, where distributed's own choices leave it open.

- Plain tasks keep off the workers of pools that accept annotated tasks only. distributed places them by data locality,
  so GPU workers would get most of them and never be idle. A plain task that finds no worker waits as `no-worker` or
  `queued`, as it does in an empty cluster, and runs when an accepting worker joins.
- No task goes to a worker that does not offer what it asks for, however loose its other restrictions are: such a worker
  closes.
- A worker that retires, but has to stay open for tasks which only it may run, gets no others: it is *reserved*.

A worker that the user names is honoured. Every way by which distributed picks a worker is narrowed here: by
restrictions, from the queue, root tasks without the queue, stealing (when it asks, and when the answer comes, which may
be seconds later), the outputs of P2P shuffles, and scattered data.
"""

from __future__ import annotations

import logging
import operator
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .drains.recall import GIVEN_BACK, reschedule
from .part import Part
from .pools import pool_of
from .requirements import has_offer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from .pools import Pools

logger = logging.getLogger("gpudask.preload")

WINDOW = 20  # workers compared for a task without inputs: distributed itself compares no more


class OpenSlots(set[Any]):
    """The workers that have a slot for queued tasks, which are plain: a fenced or reserved worker has none.

    In place of `Scheduler.idle_task_count`. The scheduler looks at a worker's slots twice a task: to go between there
    each time would cost several times as much.
    """

    def __init__(self, pools: Pools, reserved: set[WorkerState], workers: set[WorkerState]) -> None:
        super().__init__(workers)
        self._pools = pools
        self._reserved = reserved

    def add(self, ws: WorkerState) -> None:
        """Add a worker unless it is fenced or reserved."""
        # in place: this runs for every task that ends
        if self._pools.accepts.get(pool_of(ws.name)) != "annotated" and ws not in self._reserved:
            super().add(ws)


class Fence(Part):
    """Narrows the scheduler's own methods. It costs next to nothing while no worker is fenced or reserved.

    While it is not up it keeps nobody off.
    """

    feature = "fence"
    attributes = (
        *("running", "workers", "idle", "idle_task_count", "n_tasks"),
        *("handlers", "stream_handlers", "extensions"),
    )
    methods = MappingProxyType(
        {
            "valid_workers": ("ts",),
            "check_idle_saturated": ("ws",),
            "decide_worker_non_rootish": ("ts",),
            "decide_worker_rootish_queuing_disabled": ("ts",),
            "bulk_schedule_unrunnable_after_adding_worker": ("ws",),
            "stimulus_queue_slots_maybe_opened": ("stimulus_id",),
            "handle_worker_status_change": ("status", "worker", "stimulus_id"),
            "transitions": ("recommendations", "stimulus_id"),
        }
    )

    def __init__(self, scheduler: Scheduler, pools: Pools) -> None:
        self._scheduler = scheduler
        self._pools = pools
        self.is_up = False
        self.scatters: set[object] = set()  # that go on: the scheduler does not know yet of data which is on its way
        self._reserved: set[WorkerState] = set()
        self._allowed: set[WorkerState] | None = None  # running workers that accept plain tasks, kept between changes
        self._listed: list[WorkerState] = []  # the same in a fixed order
        self._running_then = -1  # how many workers ran when they were listed
        self._is_fencing = False  # whether any running worker is fenced or reserved

    def start(self) -> None:
        """Put the fence up, for the workers that are there too."""
        scheduler: Any = self._scheduler
        self.is_up = True
        self._valid_workers = self._scheduler.valid_workers
        self._decide_non_rootish = self._scheduler.decide_worker_non_rootish
        self._decide_rootish_unqueued = self._scheduler.decide_worker_rootish_queuing_disabled
        self._change_status = self._scheduler.handle_worker_status_change
        scheduler.valid_workers = self.valid_workers
        scheduler.idle_task_count = OpenSlots(self._pools, self._reserved, scheduler.idle_task_count)
        scheduler.decide_worker_non_rootish = self.decide_non_rootish
        scheduler.decide_worker_rootish_queuing_disabled = self.decide_rootish_unqueued
        scheduler.handle_worker_status_change = self.change_status
        scheduler.stream_handlers["worker-status-change"] = self.change_status
        self._scatter, scheduler.handlers["scatter"] = scheduler.handlers["scatter"], self.scatter
        self._ncores_running = scheduler.handlers["ncores_running"]
        scheduler.handlers["ncores_running"] = self.ncores_running
        self._narrow_stealing()
        self._pin_shuffles()
        self._count_slots()

    def change(self, accepts: dict[str, str]) -> None:
        """Change what pools accept: plain tasks that wait run at once on a pool that now accepts them."""
        if not self.is_up or accepts == self._pools.accepts:
            self._pools.accepts = accepts
            return
        before = self._allowed_now()
        self._pools.accepts = accepts
        self.invalidate()
        self._count_slots()
        self._schedule_on(self._allowed_now() - before)

    def reserve(self, ws: WorkerState) -> None:
        """Keep all tasks off a running worker but those that may run nowhere else."""
        if self.is_up and ws not in self._reserved:
            self._reserved.add(ws)
            self.invalidate()
            self._scheduler.idle_task_count.discard(ws)

    def unreserve(self, ws: WorkerState) -> None:
        """End a reservation: what waits may run there."""
        if ws in self._reserved:
            self._reserved.discard(ws)
            self.invalidate()
            if ws in self._scheduler.running:
                self._scheduler.check_idle_saturated(ws)
                self._schedule_on({ws})

    def add_worker(self, ws: WorkerState) -> None:  # noqa: ARG002
        """Let a worker that has come be among the allowed ones."""
        self.invalidate()

    def remove_worker(self, address: str) -> None:
        """Forget a worker that has gone."""
        for ws in [ws for ws in self._reserved if ws.address == address]:
            self._reserved.discard(ws)
        self.invalidate()

    def invalidate(self) -> None:
        """Find the allowed workers anew: some have come, gone, or changed."""
        self._allowed = None

    def admits(self, ts: TaskState, ws: WorkerState) -> bool:
        """Return whether a running worker may run a task: by its offers, its pool, its reservation, and the user."""
        if ts.resource_restrictions and not has_offer(ws, ts.resource_restrictions):
            return False
        if ws in self._reserved:
            return self._is_named(ts, ws) and not ts.loose_restrictions
        return bool(ts.resource_restrictions) or not self._pools.is_fenced(ws) or self._is_named(ts, ws)

    def valid_workers(self, ts: TaskState) -> set[WorkerState] | None:
        """Narrow `Scheduler.valid_workers`: None (any worker) becomes the workers that accept plain tasks."""
        valid = self._valid(ts)
        is_loose = ts.loose_restrictions
        if ts.resource_restrictions and not (is_loose or self._reserved):
            return valid  # most of the tasks that get here
        if valid and self._reserved:
            others = valid - self._reserved
            if others or is_loose or _is_unbound(ts):
                valid = others
        is_lost = is_loose and valid is not None and not valid  # the workers that the user named are gone
        if ts.resource_restrictions:
            return self._offering(ts.resource_restrictions) if is_lost else valid
        if valid is None or is_lost:
            allowed = self._allowed_now()
            return allowed if self._is_fencing else None
        return valid

    def decide_non_rootish(self, ts: TaskState) -> WorkerState | None:
        """Narrow `Scheduler.decide_worker_non_rootish`."""
        if not (ts.resource_restrictions or ts.dependencies or ts.actor) and _is_unbound(ts):
            allowed = self._allowed_now()
            if self._is_fencing:  # distributed would weigh all of them one by one
                return self._least_occupied() if allowed else None
        ws = self._decide_non_rootish(ts)
        if ts.loose_restrictions and ws is not None and not self.admits(ts, ws):
            return None  # distributed falls back to any worker
        return ws

    def decide_rootish_unqueued(self, ts: TaskState) -> WorkerState | None:
        """Narrow `Scheduler.decide_worker_rootish_queuing_disabled`: it picks from the idle or the running workers."""
        scheduler = self._scheduler
        allowed = self._allowed_now()
        if not self._is_fencing:
            return self._decide_rootish_unqueued(ts)
        if ts.group.last_worker not in allowed:
            ts.group.last_worker = None  # fenced since: it would go on getting the group's tasks
        idle, running = scheduler.idle, scheduler.running
        scheduler.idle = {address: ws for address, ws in idle.items() if ws in allowed}
        scheduler.running = allowed
        try:
            return self._decide_rootish_unqueued(ts)
        finally:
            scheduler.idle, scheduler.running = idle, running

    def change_status(self, status: Any, worker: Any, stimulus_id: str) -> None:
        """Follow `Scheduler.handle_worker_status_change`, which changes who is running."""
        self.invalidate()
        self._change_status(status, worker, stimulus_id)
        self.invalidate()

    async def scatter(self, *, workers: Any = None, broadcast: Any = False, **message: Any) -> Any:
        """Narrow the handler `scatter`: data without a recipe would lie on GPU workers, and keep their pods.

        Copies for everybody are what the user asked for, and a worker that the user names is honoured.
        """
        if workers is None and not broadcast:
            workers = self._addresses_for_data()
        scatter = object()
        self.scatters.add(scatter)
        try:
            return await self._scatter(workers=workers, broadcast=broadcast, **message)
        finally:
            self.scatters.discard(scatter)

    def ncores_running(self, *, workers: Any = None, **message: Any) -> Any:
        """Narrow the handler `ncores_running`, from which clients learn where to scatter to by themselves."""
        return self._ncores_running(workers=self._addresses_for_data() if workers is None else workers, **message)

    def on_steal_response(self, *, key: Any, state: str | None, stimulus_id: str, worker: str | None = None) -> None:
        """Process a worker's answer to work stealing: what it gave back goes elsewhere if the thief may not run it now.

        Since the request the thief may have closed, or its offer may have been taken back.
        """
        ts = self._scheduler.tasks.get(key)
        info = self._stealing.in_flight.get(ts) if ts is not None else None
        if ts is not None and info is not None and info["stimulus_id"] == stimulus_id and state in GIVEN_BACK:
            thief = info["thief"]
            if thief not in self._scheduler.running or not self.admits(ts, thief):
                reschedule(self._scheduler, ts, stimulus_id)
                return
        self._on_steal_response(key=key, state=state, stimulus_id=stimulus_id, worker=worker)

    def _narrow_stealing(self) -> None:
        """Let stealing request only what the thief may run: loose restrictions would let it pick anybody."""
        stealing: Any = self._scheduler.extensions.get("stealing")
        if stealing is None:
            return
        handlers: Any = self._scheduler.stream_handlers
        self._stealing = stealing
        self._on_steal_response, handlers["steal-response"] = handlers["steal-response"], self.on_steal_response
        get_thief = getattr(stealing, "_get_thief", None)
        if get_thief is None:
            logger.info("gpudask: this distributed steals in another way; what it may not steal goes back instead")
            return

        def get_admitted_thief(scheduler: Any, ts: TaskState, thieves: set[WorkerState], **options: Any) -> Any:
            if ts.loose_restrictions:
                thieves = {ws for ws in thieves if self.admits(ts, ws)}
            return get_thief(scheduler, ts, thieves, **options) if thieves else None

        stealing._get_thief = get_admitted_thief  # noqa: SLF001

    def _count_slots(self) -> None:
        """Find the workers with slots for queued tasks anew."""
        self._scheduler.idle_task_count.clear()
        for ws in self._scheduler.running:
            self._scheduler.check_idle_saturated(ws)

    def _schedule_on(self, workers: Iterable[WorkerState]) -> None:
        """Let what waits run on workers that accept more than before."""
        scheduler = self._scheduler
        for ws in workers:
            recommendations = scheduler.bulk_schedule_unrunnable_after_adding_worker(ws)
            scheduler.transitions(recommendations, stimulus_id="gpudask-fence")
        scheduler.stimulus_queue_slots_maybe_opened(stimulus_id="gpudask-fence")

    def _allowed_now(self) -> set[WorkerState]:
        """Return the running workers that accept plain tasks.

        Workers that come, go or change make us forget them, but a worker that goes stops running a moment before
        its plugins hear of it, and tasks are placed in that moment: so the number of running workers must agree, too.
        """
        running = self._scheduler.running
        if self._allowed is None or self._running_then != len(running):
            self._allowed = {ws for ws in running if not self._pools.is_fenced(ws) and ws not in self._reserved}
            self._listed = sorted(self._allowed, key=operator.attrgetter("address"))
            self._running_then = len(running)
            self._is_fencing = len(self._allowed) < len(running)
        return self._allowed

    def _addresses_for_data(self) -> list[str] | None:
        """Return the workers that accept plain tasks; None, which means all, where there is none or no other."""
        allowed = self._allowed_now()
        return [ws.address for ws in self._listed] if allowed and self._is_fencing else None

    def _offering(self, restrictions: dict[str, float]) -> set[WorkerState]:
        """Return the running workers that offer what a task asks for, whatever else restricts it."""
        running = self._scheduler.running - self._reserved
        return {ws for ws in running if ws.resources and has_offer(ws, restrictions)}

    def _is_named(self, ts: TaskState, ws: WorkerState) -> bool:
        """Return whether the user bound a task to this worker, among others or alone."""
        if _is_unbound(ts):
            return False
        named = self._valid(ts)
        return named is not None and ws in named

    def _valid(self, ts: TaskState) -> set[WorkerState] | None:
        """Return distributed's own choice, no worker where it fails: a task's quantity may be no number."""
        try:
            return self._valid_workers(ts)
        except TypeError:
            if not ts.resource_restrictions:
                raise
            return set()

    def _least_occupied(self) -> WorkerState:
        """Return the least occupied of the next few workers, in turn: the cost does not grow with the cluster."""
        n = len(self._listed)
        start = self._scheduler.n_tasks % n
        window = [self._listed[(start + i) % n] for i in range(min(n, WINDOW))]
        return min(window, key=operator.attrgetter("occupancy"))

    def _pin_shuffles(self) -> None:
        """Let a P2P shuffle pin its outputs to workers that may run them: it takes all of the scheduler's otherwise."""
        shuffle: Any = self._scheduler.plugins.get("shuffle")
        calculate = getattr(shuffle, "_calculate_worker_for", None)
        if calculate is None:
            logger.info("gpudask: this distributed has no P2P shuffle to fence")
            return

        def calculate_worker_for(spec: Any) -> Any:
            from distributed.shuffle._core import barrier_key  # noqa: PLC0415 (only where there is a shuffle)

            barrier = self._scheduler.tasks[barrier_key(spec.id)]
            if barrier.worker_restrictions:
                return calculate(spec)
            valid = self.valid_workers(barrier)
            runnable = {ws.address for ws in (self._scheduler.running if valid is None else valid)}
            barrier.worker_restrictions = runnable or None
            try:
                return calculate(spec)
            finally:
                barrier.worker_restrictions = None

        shuffle._calculate_worker_for = calculate_worker_for  # noqa: SLF001


def _is_unbound(ts: TaskState) -> bool:
    """Return whether any worker would do for a task, but for what it asks for and for the fence."""
    return not (ts.worker_restrictions or ts.host_restrictions)
