"""The drain of one worker: closed to new tasks, its queue recalled, its running tasks ended, its results moved.

The drain looks at the worker as it is and takes the next step, again and again, also when the worker is drained:
whatever happens meanwhile (a recipient dies, a worker joins, the client drops a future) is found at the next step.
`retire_workers` is not used: it moves data before tasks end, gives up silently, and reopens the worker where it finds
no place.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distributed.comm.core import CommClosedError
from distributed.core import Status

from .blockers import activity_message, is_barrier, pinned_message
from .result_evacuation import EMPTY, STUCK, Evacuation, is_only_copy
from .result_release import Recipes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from ..desired import RetireRequest
    from ..fence import Fence
    from ..pools import Pools
    from .blockers import Actors, Pinned
    from .recall import Recall
    from .result_release import Release

DRAINING, BLOCKED, DRAINED = "draining", "blocked", "drained"
# Until another step where no message comes: while results move, while tasks run, and else.
SOON_SECONDS, WAIT_SECONDS, LATER_SECONDS = 0.02, 1.0, 0.5
COPIES_AT_ONCE = 5_000  # looked at in a step
OPEN = (Status.running, Status.paused)


@dataclass
class SharedView:
    """The state that all drains of one scheduler share. `version` changes with anything but their own workers."""

    retiring: set[WorkerState] = field(default_factory=set)  # workers that a result is not safe on
    drained: set[WorkerState] = field(default_factory=set)
    shuffling: set[WorkerState] = field(default_factory=set)
    version: int = 0


@dataclass(frozen=True)
class DrainContext:
    """The parts that the drains of one scheduler use."""

    scheduler: Scheduler
    pools: Pools
    recall: Recall
    pinned: Pinned
    actors: Actors
    release: Release
    fence: Fence
    view: SharedView
    changed: Callable[[Drain], None]  # called when a drain's state is another
    wake: Callable[[Drain], None]  # called when a drain should take another step soon


class Drain:
    """The drain of one worker."""

    def __init__(self, context: DrainContext, ws: WorkerState, request: RetireRequest) -> None:
        self.state, self.blocker, self.detail = DRAINING, "", ""
        self.ws = ws
        self.pod = request.pod
        self.request = request
        self.due = 0.0  # when it should take another step, whether something changes or not
        self.has_closed = False  # a worker that closes for reasons of its own is not ours to open
        self.is_reserved = False  # open for what only this worker may run
        self._context = context
        self._last_signature: object = None
        self._selection = context.recall.select(ws, self._may_go, lambda: context.wake(self))
        self._evacuation = Evacuation(context.scheduler, context.pools, ws, lambda: context.wake(self))
        self._copies: Iterator[TaskState] | None = None  # of what it holds, until it is closed
        self._scatters: set[object] = set()  # that may have chosen the worker before it closed

    def begin(self) -> str:
        """Close the worker in this very moment if it can be; return why it has to stay open, `""` if it need not."""
        reason = self._open_for()
        if reason or not self._leave_copies():
            self._reserve()
        else:
            self._close()
        return reason

    def step(self, now: float) -> bool:
        """Look at the worker and do what is next; return whether it got on."""
        view, ws, actors = self._context.view, self.ws, self._context.actors
        before, self._evacuation.got_on = (self.state, self.blocker), False
        self._last_signature = self._signature()
        reason = self.begin()
        if reason or ws.processing or ws.status != Status.closing_gracefully:
            self._evacuation.start_anew()
        if reason or ws.processing:
            if ws.processing:
                self._context.recall.step(self._selection)
            detail = reason or activity_message(ws, actors)
            self._set(DRAINING, "pinned" if reason and ws not in view.shuffling else "", detail)
        elif ws.status != Status.closing_gracefully:
            self._set(DRAINING, "", status_message(ws.status.name))
        elif actors.on(ws):
            self._set(BLOCKED, "", activity_message(ws, actors))
        elif self._is_scattered_to():
            self._set(DRAINING, "", "data may be on its way there")
        else:
            self._evacuate()
        if self.state == DRAINING and not ws.processing and (self._evacuation.is_moving or self._scatters):
            self.due = now + SOON_SECONDS
        else:
            self.due = now + (WAIT_SECONDS if ws.processing else LATER_SECONDS)
        return self._evacuation.got_on or before != (self.state, self.blocker)

    def is_due(self, now: float) -> bool:
        """Return whether a step may find something new."""
        return now >= self.due or self._last_signature != self._signature()

    def wake(self) -> None:
        """Make a step due."""
        self.due = 0.0

    def transfer_failed(self, keys: list[Any], address: str, error: str) -> bool:
        """Note that the worker at `address` could not copy `keys`; return whether this drain requested that."""
        return self._evacuation.transfers.failed(keys, address, error)

    def not_found(self, keys: list[Any], address: str) -> bool:
        """Note that the worker at `address` knows nobody to copy `keys` from; return as above."""
        return self._evacuation.transfers.not_found(keys, address)

    def stop(self) -> None:
        """End the drain without a message to the worker."""
        self._evacuation.stop()
        self._context.recall.stop(self._selection)

    def undo(self) -> None:
        """End the drain and let the worker open again: once it says so itself, for it may have ended."""
        self.stop()
        if self.has_closed and self.ws.status == Status.closing_gracefully and self.is_known():
            self.send_status(Status.running)
        self._context.fence.unreserve(self.ws)

    def _close(self) -> None:
        """Close the worker to new tasks, if it is up."""
        if self.ws.status in OPEN:
            self.has_closed = True
            self._scatters = set(self._context.fence.scatters)
            self._context.scheduler.handle_worker_status_change(Status.closing_gracefully, self.ws, _stimulus())
            self.send_status(Status.closing_gracefully)
        if self.is_reserved:
            self._context.fence.unreserve(self.ws)
        self.is_reserved = False

    def release_results(self) -> None:
        """Release what was not moved: the worker ends now. Until now it could be fetched."""
        if self.state == DRAINED and self.request.data == "release":
            retiring, recipes = self._context.view.retiring, Recipes()
            only = [ts for ts in self.ws.has_what if is_only_copy(ts, retiring) and recipes.has(ts)]
            self._context.release.release(self.ws, only)

    def is_drained(self) -> bool:
        """Return whether nothing is left there: as the last step found, and no task has come since."""
        return self.state == DRAINED and not self.ws.processing and not self._open_for()

    def is_known(self) -> bool:
        """Return whether the worker is still there."""
        return self._context.scheduler.workers.get(self.ws.address) is self.ws

    def _signature(self) -> object:
        ws, view = self.ws, self._context.view
        own = len(ws.processing), len(ws.has_what), ws.status, self._context.pinned.count(ws)
        return (*own, ws in view.shuffling, view.version)

    def _open_for(self) -> str:
        """Return why the worker has to stay open, `""` if it may close: a closed worker starts no task."""
        view = self._context.view
        if self.ws in view.shuffling:
            return "a shuffle runs"
        pinned = self._context.pinned.only_on(self.ws, view.retiring)
        return "" if pinned is None else pinned_message(pinned)

    def _may_go(self, ts: TaskState) -> bool:
        """Return whether a queued task is to be recalled. From an open worker without a fence it would come again.

        A barrier is not: its shuffle would begin anew.
        """
        if is_barrier(ts) or (self.is_reserved and not self._context.fence.is_up):
            return False
        return not self._context.pinned.is_only_on(ts, self._context.view.retiring)

    def _is_scattered_to(self) -> bool:
        if self._scatters:
            self._scatters &= self._context.fence.scatters
        return bool(self._scatters)

    def _reserve(self) -> None:
        """Keep the worker open, or open it again, for tasks that only it may run."""
        self.is_reserved = True
        self._context.fence.reserve(self.ws)
        if self.has_closed and self.ws.status == Status.closing_gracefully:
            self.send_status(Status.running)

    def _leave_copies(self) -> bool:
        """Drop the copies that drained workers have of what this one holds, before it closes; return whether all are.

        They may be gone at any moment, but until then they count as copies: Dask's memory manager, which lets workers
        that retire drop theirs first, could choose the one here.
        """
        drained = self._context.view.drained
        if self.ws.status not in OPEN:
            return True
        if self._copies is None:
            self._copies = iter(tuple(self.ws.has_what) if drained else ())
        looked_at = 0
        keys: dict[str, list[Any]] = {}
        for ts in itertools.islice(self._copies, COPIES_AT_ONCE):
            looked_at += 1
            holders = ts.who_has or ()
            if len(holders) > 1 and self.ws in holders:
                for ws in drained.intersection(holders) - {self.ws}:
                    keys.setdefault(ws.address, []).append(ts.key)
        for address, some in keys.items():
            self._context.scheduler.request_remove_replicas(address, some, stimulus_id=_stimulus())
        if looked_at < COPIES_AT_ONCE:
            self._copies = None
            return True
        return False

    def send_status(self, status: Status) -> None:
        """Send the worker its status, unless it is going."""
        with contextlib.suppress(KeyError, CommClosedError):
            self._context.scheduler.stream_comms[self.ws.address].send(
                {"op": "worker-status-change", "status": status.name, "stimulus_id": _stimulus()}
            )

    def _evacuate(self) -> None:
        outcome, reason = self._evacuation.step(self._context.view.retiring, release=self.request.data == "release")
        if outcome == EMPTY:
            self._set(DRAINED, "", "")
        elif outcome == STUCK:
            self._set(BLOCKED, "data", reason)
        else:
            self._set(DRAINING, "", reason)

    def _set(self, state: str, blocker: str, detail: str) -> None:
        self.detail = detail
        if (state, blocker) != (self.state, self.blocker):
            self.state, self.blocker = state, blocker
            self._context.changed(self)


def _stimulus() -> str:
    return f"gpudask-retire-{time.monotonic()}"


def status_message(status: str) -> str:
    """What a worker does that has not closed itself to new tasks; `status` is distributed's word for it."""
    if status in ("undefined", "created", "init", "starting"):
        return "the worker has not finished starting"
    if status == "paused":
        return "the worker is paused: its memory is nearly full"
    if status == "running":
        return "the worker has not answered yet that it takes no new tasks"
    return "the worker is ending"
