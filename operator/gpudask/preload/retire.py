"""Which workers are on their way out: the operator's list of pods, turned into drains that can be undone."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin

from .drain import DRAINED, DRAINING, Drain
from .names import is_of_pod
from .recall import Recall
from .transfers import plain_words
from .workers import describe, in_shuffle

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed.scheduler import Scheduler, WorkerState

    from .demand import Demand
    from .desired import Retiring
    from .pools import Pools
    from .watch import Watch
    from .workers import Workers


logger = logging.getLogger("gpudask.preload")

ERRED, NOT_FOUND = "task-erred", "request-refresh-who-has"  # messages of workers


class Retire(SchedulerPlugin):
    """The drains of one scheduler. It remembers pods, so that a worker that comes back is closed again."""

    name = "gpudask-retire"

    def __init__(self, scheduler: Scheduler, pools: Pools, workers: Workers, demand: Demand, watch: Watch) -> None:
        self._scheduler = scheduler
        self._pools = pools
        self._workers = workers
        self._demand = demand
        self._watch = watch
        self._wishes: dict[str, Retiring] = {}  # pod -> wish
        self._drains: dict[str, Drain] = {}  # worker's address -> drain
        self._change_status = scheduler.handle_worker_status_change

    def hook_in(self) -> None:
        """Hook in."""
        scheduler: Any = self._scheduler
        self.recall = Recall(scheduler, self._demand.stolen)
        scheduler.handle_worker_status_change = self.change_status
        scheduler.stream_handlers["worker-status-change"] = self.change_status
        self._watch.listen(self._poke)
        for op, heard in ((ERRED, self._on_erred), (NOT_FOUND, self._on_not_found)):
            if op in scheduler.stream_handlers:  # without them a failed transfer shows after a while only
                scheduler.stream_handlers[op] = _listened(scheduler.stream_handlers[op], heard)

    def stop(self) -> None:
        """End all drains without a word to the workers."""
        for drain in self._drains.values():
            drain.stop()
        self._drains.clear()

    def accept(self, wishes: tuple[Retiring, ...]) -> dict[str, str]:
        """Take the whole list: begin what is new, undo what is no longer named; return pod -> why it may not leave."""
        refused = {}
        accepted = {}
        for wish in wishes:
            why = "" if wish.pod in self._wishes or not wish.if_idle else self._why_busy(wish.pod)
            if why:
                refused[wish.pod] = why
            else:
                accepted[wish.pod] = wish
        self._wishes = accepted
        for address, drain in list(self._drains.items()):
            if self._wish_for(drain.ws) is None:
                del self._drains[address]
                drain.undo()
        for ws in list(self._scheduler.workers.values()):
            self._begin(ws)
        return refused

    def complete(self, row: dict[str, Any]) -> None:
        """Add to a worker's row what its drain knows."""
        drain = self._drains.get(row["address"])
        if drain is None:
            return
        row["retiring"] = self.state_of(drain.ws)
        row["detail"] = drain.detail
        row["blockers"] = [blocker for blocker in row["blockers"] if blocker != "data"]
        if drain.blocker:
            row["blockers"].append(drain.blocker)

    def state_of(self, ws: WorkerState) -> str:
        """Return how far the worker's drain is, `""` where there is none; drained it is together with its pod."""
        drain = self._drains.get(ws.address)
        if drain is None:
            return ""
        return DRAINING if drain.state == DRAINED and not self._is_pod_drained(drain) else drain.state

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Close a worker of a leaving pod that comes (back)."""
        self._begin(scheduler.workers[worker])
        self._poke()

    def remove_worker(self, scheduler: Scheduler, worker: str, **_kwargs: Any) -> None:  # noqa: ARG002
        """Forget a worker that has gone."""
        drain = self._drains.pop(worker, None)
        if drain is not None:
            drain.stop()
        self._poke()

    def change_status(self, status: Any, worker: Any, stimulus_id: str) -> None:
        """Keep a leaving worker closed: one that has just come up says `running`, before it would get tasks.

        One that says `closing` ends: what it alone has is lost in a moment.
        """
        ws = self._scheduler.workers.get(worker) if isinstance(worker, str) else worker
        drain = self._drains.get(ws.address) if ws is not None else None
        opens = status in ("running", Status.running)
        if drain is not None and drain.ws is ws and opens and ws not in in_shuffle(self._scheduler):
            status = Status.closing_gracefully
            drain.has_closed = True
            self._scheduler.stream_comms[ws.address].send(
                {"op": "worker-status-change", "status": status.name, "stimulus_id": stimulus_id}
            )
        elif drain is not None and drain.ws is ws and status in ("closing", Status.closing):
            drain.end()
        self._change_status(status, worker, stimulus_id)
        self._watch.ring()
        self._poke()

    def _on_erred(self, key: Any, worker: str, exception_text: str = "", **_kwargs: Any) -> None:
        """Hear of a copy that could not be sent or read; distributed itself takes no notice of it."""
        for drain in self._drains.values():
            drain.transfer_failed([key], worker, plain_words(exception_text))

    def _on_not_found(self, keys: Any, worker: str, **_kwargs: Any) -> None:
        """Hear of a worker that finds nobody to copy from."""
        for drain in self._drains.values():
            drain.not_found(list(keys), worker)

    def _begin(self, ws: WorkerState) -> None:
        wish = self._wish_for(ws)
        if wish is None:
            return
        drain = self._drains.get(ws.address)
        if drain is not None:
            drain.wish = wish
            drain.poke()
            return
        drain = Drain(
            scheduler=self._scheduler,
            pools=self._pools,
            recall=self.recall,
            ws=ws,
            leaving=self._leaving,
            changed=self._watch.ring,
        )
        self._drains[ws.address] = drain
        self._keep_copies_here(ws)
        drain.start(wish)
        self._watch.ring()

    def _keep_copies_here(self, ws: WorkerState) -> None:
        """Drop the copies that drained workers have of what `ws` holds.

        They may be gone at any moment, but until then they count as copies: Dask's memory manager, which lets workers
        that leave drop theirs first, could choose the one on `ws`, as soon as that leaves too.
        """
        for drain in self._drains.values():
            if drain.state == DRAINED and drain.ws is not ws and drain.is_known():
                keys = [ts.key for ts in drain.ws.has_what if ws in (ts.who_has or ())]
                if keys:
                    stimulus_id = f"gpudask-retire-{time.monotonic()}"
                    self._scheduler.request_remove_replicas(drain.ws.address, keys, stimulus_id=stimulus_id)

    def _wish_for(self, ws: WorkerState) -> Retiring | None:
        return next((wish for pod, wish in self._wishes.items() if is_of_pod(ws.name, pod)), None)

    def _why_busy(self, pod: str) -> str:
        """Return why the pod is not idle, `""` if it is: any work of its own on any of its workers."""
        shuffling = in_shuffle(self._scheduler)
        for ws in self._scheduler.workers.values():
            if not is_of_pod(ws.name, pod):
                continue
            if self._workers.own(ws):
                return f"{ws.name} is busy: {describe(ws)}"
            if ws in shuffling:
                return f"{ws.name} takes part in a shuffle"
        return ""

    def _leaving(self) -> set[WorkerState]:
        """Return the workers that a result is not safe on."""
        drained = {drain.ws for drain in self._drains.values()}
        return drained | {ws for ws in self._scheduler.workers.values() if ws.status == Status.closing_gracefully}

    def _is_pod_drained(self, drain: Drain) -> bool:
        pod = drain.wish.pod if drain.wish else ""
        others = [other for other in self._drains.values() if other.wish and other.wish.pod == pod]
        return all(other.state == DRAINED for other in others)

    def _poke(self) -> None:
        for drain in self._drains.values():
            drain.poke()


def _listened(handler: Callable[..., None], heard: Callable[..., None]) -> Callable[..., None]:
    """Return a stream handler that tells `heard` of each message, too. What fails in it is no worker's business."""

    def handle(**message: Any) -> None:
        handler(**message)
        try:
            heard(**message)
        except Exception:
            logger.exception("gpudask: a worker's message was not understood")

    return handle
