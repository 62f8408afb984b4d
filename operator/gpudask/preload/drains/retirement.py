"""Retirement of workers: the operator's list of pods, turned into drains that can be undone.

One round, now and then, lets each drain take a step whose worker has changed or whose time has come. What all of them
need to know is found once a round, and rounds rest in proportion to what they took: so hundreds of drains that wait in
a large cluster cost the scheduler next to nothing.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from distributed.core import Status

from ..part import Part
from ..pools import by_pod, pods_of
from .blockers import activity_message, in_shuffle, pinned_message
from .drain import DRAINED, DRAINING, LATER_SECONDS, Drain, DrainContext, SharedView
from .recall import Recall
from .result_release import Release
from .result_transfers import short_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed.scheduler import Scheduler, WorkerState

    from ..desired import RetireRequest
    from ..fence import Fence
    from ..pools import Pools
    from ..watch import Watch
    from ..workers import Workers
    from .blockers import Actors, Pinned


logger = logging.getLogger("gpudask.preload")

ERRED, NOT_FOUND = "task-erred", "request-refresh-who-has"  # messages of workers
SLICE_SECONDS = 0.005  # in one go; the other drains come in the next round
WAIT_SHARE, STEP_SHARE = 0.01, 0.05  # of the loop's time may go into rounds: while nothing goes on, and while drains do


class Retirement(Part):
    """The drains of one scheduler. It remembers pods, so that a worker that comes back is closed again."""

    feature = "retire"
    attributes = ("running", "workers", "stream_comms", "stream_handlers", "extensions")
    methods = MappingProxyType(
        {
            "handle_worker_status_change": ("status", "worker", "stimulus_id"),
            "_reschedule": ("key", "stimulus_id"),
            "request_acquire_replicas": ("addr", "keys", "stimulus_id"),
            "request_remove_replicas": ("addr", "keys", "stimulus_id"),
            "broadcast": ("msg", "workers", "on_error"),
            "transition": ("key", "finish", "stimulus_id"),
            "transitions": ("recommendations", "stimulus_id"),
        }
    )
    depends_on = MappingProxyType({"demand": "without demand nobody knows which workers are idle"})

    def __init__(
        self,
        scheduler: Scheduler,
        workers: Workers,
        watch: Watch,
        *,
        pools: Pools,
        pinned: Pinned,
        actors: Actors,
        fence: Fence,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._scheduler = scheduler
        self._workers = workers
        self._watch = watch
        self._pinned = pinned
        self._actors = actors
        self._requests: dict[str, RetireRequest] = {}  # pod -> request
        self._drains: dict[str, Drain] = {}  # worker's address -> drain
        self._by_pod: dict[str, dict[str, Drain]] = {}  # pod -> worker's address -> drain
        self._view = SharedView()
        self._timer: asyncio.TimerHandle | None = None
        self._rests_until = -math.inf
        self._next = 0  # drain whose turn it is in the next round
        self.recall = Recall(scheduler, watch.touch)
        self._release = Release(scheduler)
        self._context = DrainContext(
            scheduler=scheduler,
            pools=pools,
            recall=self.recall,
            pinned=pinned,
            actors=actors,
            release=self._release,
            fence=fence,
            view=self._view,
            changed=self._on_changed,
            wake=self._wake,
        )

    def start(self) -> None:
        """Follow workers' changes of status, and their messages on copies that failed."""
        scheduler: Any = self._scheduler
        self.recall.start()
        self._change_status = scheduler.handle_worker_status_change
        scheduler.handle_worker_status_change = self.change_status
        scheduler.stream_handlers["worker-status-change"] = self.change_status
        self._watch.add_listener(self._schedule)
        self._watch.add_listener(self._release.recompute_needed)
        for op, listener in ((ERRED, self._on_erred), (NOT_FOUND, self._on_not_found)):
            if op in scheduler.stream_handlers:  # without them a failed transfer shows after a while only
                scheduler.stream_handlers[op] = _with_listener(scheduler.stream_handlers[op], listener)

    def stop(self) -> None:
        """End all drains without a message to the workers."""
        if self._timer is not None:
            self._timer.cancel()
        for drain in self._drains.values():
            drain.stop()
        self._drains.clear()
        self._by_pod.clear()

    def retire(self, requests: tuple[RetireRequest, ...]) -> dict[str, str]:
        """Begin drains for the pods that are new, undo those no longer named; return pod -> why it may not leave."""
        workers = by_pod(self._scheduler.workers.values())
        shuffling = in_shuffle(self._scheduler) if requests else set()
        refused = {}
        accepted = {}
        for request in requests:
            reason = ""
            if request.if_idle and request.pod not in self._requests:
                reason = self._busy_reason(workers.get(request.pod, []), shuffling)
            if reason:
                refused[request.pod] = reason
            else:
                accepted[request.pod] = request
        self._requests = accepted
        for undone in [drain for drain in self._drains.values() if self._request_for(drain.ws) is None]:
            self._forget(undone)
            undone.undo()
        self._view.shuffling = shuffling
        begun = [drain for pod in accepted for ws in workers.get(pod, ()) if (drain := self._add(ws)) is not None]
        for drain in begun:
            drain.begin()
        return refused

    def complete_workers(self, rows: list[dict[str, Any]]) -> None:
        """Add to the workers' rows what their drains know."""
        for row in rows if self._drains else ():
            drain = self._drains.get(row["address"])
            if drain is None:
                continue
            row["retiring"] = self.state_of(drain.ws)
            row["detail"] = drain.detail
            row["blockers"] = [blocker for blocker in row["blockers"] if blocker not in ("data", drain.blocker)]
            if drain.blocker:
                row["blockers"].append(drain.blocker)

    def state_of(self, ws: WorkerState) -> str:
        """Return how far the worker's drain is, `""` where there is none; drained it is together with its pod."""
        drain = self._drains.get(ws.address)
        if drain is None:
            return ""
        of_pod = self._by_pod[drain.pod].values()
        if drain.state == DRAINED and not all(other.is_drained() for other in of_pod):
            return DRAINING
        return drain.state

    def add_worker(self, ws: WorkerState) -> None:
        """Close a worker of a retiring pod that comes (back)."""
        self._invalidate()
        drain = self._add(ws)
        if drain is not None:
            drain.begin()

    def remove_worker(self, address: str) -> None:
        """Forget a worker that has gone."""
        self.recall.forget(address)
        drain = self._drains.get(address)
        if drain is not None:
            self._forget(drain)
            drain.stop()
        for ws in [ws for ws in self._view.retiring if ws.address == address]:
            self._view.retiring.discard(ws)
        self._invalidate()

    def change_status(self, status: Any, worker: Any, stimulus_id: str) -> None:
        """Keep a retiring worker closed: one that has just come up says `running`, before it would get tasks.

        One that says `closing` ends: what it alone has is lost in a moment.
        """
        ws = self._scheduler.workers.get(worker) if isinstance(worker, str) else worker
        drain = self._drains.get(ws.address) if ws is not None else None
        if drain is not None and drain.ws is ws:
            if status in ("running", Status.running) and not drain.is_reserved:
                status = Status.closing_gracefully
                drain.has_closed = True
                drain.send_status(status)
            elif status in ("closing", Status.closing):
                drain.release_results()
        self._change_status(status, worker, stimulus_id)
        if ws is not None and ws.status == Status.closing_gracefully:
            self._view.retiring.add(ws)
        elif ws is not None and drain is None:
            self._view.retiring.discard(ws)
        self._watch.publish_now()
        self._invalidate()

    def _on_changed(self, drain: Drain) -> None:
        """Follow a drain that got on, or back: the others' results may be safe in fewer places now."""
        if drain.state == DRAINED:
            self._view.drained.add(drain.ws)
        else:
            self._view.drained.discard(drain.ws)
        self._watch.publish_now()
        self._invalidate()

    def _invalidate(self) -> None:
        """Let all drains take a step."""
        self._view.version += 1
        self._schedule()

    def _schedule(self) -> None:
        """Begin a round as soon as it may take time again."""
        if self._drains:
            self._schedule_at(max(self._loop.time(), self._rests_until))

    def _schedule_at(self, at: float) -> None:
        if self._timer is None or at < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        """Let drains take a step, for a moment; those that had no turn are the first ones next time."""
        self._timer = None
        started = time.perf_counter()
        now = self._loop.time()
        drains = list(self._drains.values())
        self._view.shuffling = in_shuffle(self._scheduler, [drain.ws for drain in drains])
        first = self._next % len(drains) if drains else 0
        n_met, got_on = 0, False
        for drain in drains[first:] + drains[:first]:
            if time.perf_counter() - started > SLICE_SECONDS:
                break
            n_met += 1
            if drain.is_due(now) and self._drains.get(drain.ws.address) is drain:
                got_on |= self._step(drain, now)
        self._next = first + n_met
        self._rests_until = now + (time.perf_counter() - started) / (STEP_SHARE if got_on else WAIT_SHARE)
        if self._drains:
            due = min(drain.due for drain in self._drains.values()) if n_met == len(drains) else now
            self._schedule_at(max(self._rests_until, due))

    def _step(self, drain: Drain, now: float) -> bool:
        try:
            return drain.step(now)
        except Exception:
            logger.exception("gpudask: the drain of %s goes on after an error", drain.ws.name)
            drain.due = now + LATER_SECONDS
            return False

    def _on_erred(self, key: Any, worker: str, exception_text: str = "", **_kwargs: Any) -> None:
        """Note a copy that could not be sent or read; distributed itself takes no notice of it."""
        for drain in self._drains.values():
            if drain.transfer_failed([key], worker, short_error(exception_text)):
                self._wake(drain)

    def _on_not_found(self, keys: Any, worker: str, **_kwargs: Any) -> None:
        """Note that a worker finds nobody to copy from."""
        for drain in self._drains.values():
            if drain.not_found(list(keys), worker):
                self._wake(drain)

    def _wake(self, drain: Drain) -> None:
        drain.wake()
        self._schedule()

    def _add(self, ws: WorkerState) -> Drain | None:
        """Return a worker's drain if it is new, to begin it; one that goes on gets its request."""
        request = self._request_for(ws)
        if request is None:
            return None
        drain = self._drains.get(ws.address)
        if drain is not None:
            drain.request = request
            self._wake(drain)
            return None
        drain = Drain(self._context, ws, request)
        self._drains[ws.address] = drain
        self._by_pod.setdefault(drain.pod, {})[ws.address] = drain
        self._view.retiring.add(ws)
        self._on_changed(drain)
        return drain

    def _forget(self, drain: Drain) -> None:
        del self._drains[drain.ws.address]
        of_pod = self._by_pod[drain.pod]
        of_pod.pop(drain.ws.address, None)
        if not of_pod:
            del self._by_pod[drain.pod]
        self._view.retiring.discard(drain.ws)
        self._view.drained.discard(drain.ws)
        self._invalidate()

    def _request_for(self, ws: WorkerState) -> RetireRequest | None:
        return next((self._requests[pod] for pod in pods_of(ws.name) if pod in self._requests), None)

    def _busy_reason(self, workers: list[WorkerState], shuffling: set[WorkerState]) -> str:
        """Return why a pod is not idle, `""` if it is: any work of its own on any of its workers."""
        for ws in workers:
            if self._workers.has_own(ws):
                return f"{ws.name} is busy: {activity_message(ws, self._actors)}"
            if ws in shuffling:
                return f"{ws.name} takes part in a shuffle"
            pinned = self._pinned.only_on(ws, {ws})
            if pinned is not None:
                return f"{ws.name} has to stay: {pinned_message(pinned)}"
        return ""


def _with_listener(handler: Callable[..., None], listener: Callable[..., None]) -> Callable[..., None]:
    """Return a stream handler that calls `listener` with each message, too; errors of `listener` are logged."""

    def handle(**message: Any) -> None:
        handler(**message)
        try:
            listener(**message)
        except Exception:
            logger.exception("gpudask: a worker's message was not understood")

    return handle
