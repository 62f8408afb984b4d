"""Keeps plain tasks off the workers of pools that accept annotated tasks only.

distributed places plain tasks by data locality, so GPU workers would get most of them and never be idle. Every way
by which it picks a worker for a plain task is narrowed here: by restrictions, from the queue, root tasks without the
queue, stealing (which asks `valid_workers`), and the outputs of P2P shuffles. A plain task that finds no worker waits
as `no-worker` or `queued`, as it does in an empty cluster, and runs when an accepting worker joins. A worker that the
user names is honoured.
"""

from __future__ import annotations

import logging
import operator
from typing import TYPE_CHECKING, Any

from .names import pool_of

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from .pools import Pools

logger = logging.getLogger("gpudask.preload")

WINDOW = 20  # workers compared for a task without inputs: distributed itself compares no more


class OpenSlots(set[Any]):
    """The workers that have a slot for queued tasks, which are plain: a fenced worker has none.

    In place of `Scheduler.idle_task_count`. The scheduler looks at a worker's slots twice a task: to go between there
    each time would cost several times as much.
    """

    def __init__(self, pools: Pools, workers: set[WorkerState]) -> None:
        super().__init__(workers)
        self._pools = pools

    def add(self, ws: WorkerState) -> None:
        """Add a worker unless it is fenced."""
        if self._pools.accepts.get(pool_of(ws.name)) != "annotated":  # in place: this runs for every task that ends
            super().add(ws)


class Fence:
    """Narrows the scheduler's own methods. It costs nothing while no worker is fenced."""

    def __init__(self, scheduler: Scheduler, pools: Pools) -> None:
        self._scheduler = scheduler
        self._pools = pools
        self._allowed: set[WorkerState] | None = None  # running workers that accept plain tasks, kept between changes
        self._listed: list[WorkerState] = []  # the same in a fixed order
        self._running_then = -1  # how many workers ran when they were listed
        self._fences = False  # whether any running worker is fenced
        self._valid_workers = scheduler.valid_workers
        self._decide_non_rootish = scheduler.decide_worker_non_rootish
        self._decide_rootish_unqueued = scheduler.decide_worker_rootish_queuing_disabled
        self._change_status = scheduler.handle_worker_status_change

    def hook_in(self) -> None:
        """Put the fence up, for the workers that are there too."""
        scheduler: Any = self._scheduler
        scheduler.valid_workers = self.valid_workers
        scheduler.idle_task_count = OpenSlots(self._pools, scheduler.idle_task_count)
        scheduler.decide_worker_non_rootish = self.decide_non_rootish
        scheduler.decide_worker_rootish_queuing_disabled = self.decide_rootish_unqueued
        scheduler.handle_worker_status_change = self.change_status
        scheduler.stream_handlers["worker-status-change"] = self.change_status
        self._pin_shuffles()
        self._count_slots()

    def change(self, accepts: dict[str, str]) -> None:
        """Take in what pools accept: plain tasks that wait run at once on a pool that now accepts them."""
        scheduler = self._scheduler
        before = self._allowed_now()
        self._pools.accepts = accepts
        self.forget()
        self._count_slots()
        for ws in self._allowed_now() - before:
            recommendations = scheduler.bulk_schedule_unrunnable_after_adding_worker(ws)
            scheduler.transitions(recommendations, stimulus_id="gpudask-fence")
        scheduler.stimulus_queue_slots_maybe_opened(stimulus_id="gpudask-fence")

    def forget(self) -> None:
        """Find the allowed workers anew: some have come, gone, or changed."""
        self._allowed = None

    def valid_workers(self, ts: TaskState) -> set[WorkerState] | None:
        """Narrow `Scheduler.valid_workers`: None (any worker) becomes the workers that accept plain tasks."""
        valid: set[WorkerState] | None = self._valid_workers(ts)
        if ts.resource_restrictions:
            return valid
        # Empty and loose: the workers that the user named are gone, and any other would do
        if valid is None or (not valid and ts.loose_restrictions):
            allowed = self._allowed_now()
            return allowed if self._fences else valid
        return valid

    def decide_non_rootish(self, ts: TaskState) -> WorkerState | None:
        """Narrow `Scheduler.decide_worker_non_rootish`."""
        if ts.resource_restrictions:
            return self._decide_non_rootish(ts)
        if _is_unbound(ts) and not ts.dependencies and not ts.actor:
            allowed = self._allowed_now()
            if self._fences:  # distributed would weigh all of them one by one
                return self._least_occupied() if allowed else None
        ws = self._decide_non_rootish(ts)
        return None if ws is not None and self._keeps_off(ts, ws) else ws

    def decide_rootish_unqueued(self, ts: TaskState) -> WorkerState | None:
        """Narrow `Scheduler.decide_worker_rootish_queuing_disabled`: it picks from the idle or the running workers."""
        scheduler = self._scheduler
        allowed = self._allowed_now()
        if not self._fences:
            return self._decide_rootish_unqueued(ts)
        idle, running = scheduler.idle, scheduler.running
        scheduler.idle = {address: ws for address, ws in idle.items() if ws in allowed}
        scheduler.running = allowed
        try:
            return self._decide_rootish_unqueued(ts)
        finally:
            scheduler.idle, scheduler.running = idle, running

    def change_status(self, status: Any, worker: Any, stimulus_id: str) -> None:
        """Follow `Scheduler.handle_worker_status_change`, which changes who is running."""
        self.forget()
        self._change_status(status, worker, stimulus_id)
        self.forget()

    def _count_slots(self) -> None:
        """Find the workers with slots for queued tasks anew."""
        self._scheduler.idle_task_count.clear()
        for ws in self._scheduler.running:
            self._scheduler.check_idle_saturated(ws)

    def _allowed_now(self) -> set[WorkerState]:
        """Return the running workers that accept plain tasks.

        Workers that come, go or change make us forget them, but a worker that goes stops running a moment before
        its plugins hear of it, and tasks are placed in that moment: so the number of running workers must agree, too.
        """
        running = self._scheduler.running
        if self._allowed is None or self._running_then != len(running):
            self._allowed = {ws for ws in running if not self._pools.is_fenced(ws)}
            self._listed = sorted(self._allowed, key=operator.attrgetter("address"))
            self._running_then = len(running)
            self._fences = len(self._allowed) < len(running)
        return self._allowed

    def _keeps_off(self, ts: TaskState, ws: WorkerState) -> bool:
        """Return whether a task must not go where distributed wants it: loose restrictions fall back to all workers."""
        if not self._pools.is_fenced(ws):
            return False
        named = self._valid_workers(ts)
        return named is None or ws not in named

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
    """Return whether any worker would do for a plain task, but for the fence."""
    return not (ts.worker_restrictions or ts.host_restrictions)
