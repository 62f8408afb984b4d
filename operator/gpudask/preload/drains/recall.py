"""Recall of tasks that a worker has queued and not begun, so that they run elsewhere.

Only the worker knows what it has begun (the scheduler's picture is a heartbeat old), so each task is requested by the
message that work stealing uses, and given to another worker when the answer says that it had not begun.

A worker that answers so has dropped the task: such an answer is always acted on, whether the request still matters or
not, and names the run that it is about. A request is forgotten only with its worker. Answers come in batches and each
moves a task, so they are processed in slices, and only so many requests are on their way to a worker at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distributed.comm.core import CommClosedError

from .blockers import BARRIER, active_shuffles, is_barrier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distributed.scheduler import Scheduler, TaskState, WorkerState

logger = logging.getLogger("gpudask.preload")

GIVEN_BACK = frozenset({"ready", "constrained", "waiting", "released", None})
UNDECIDED = frozenset({"cancelled", "resumed"})  # the worker is between two states: the request is repeated
REQUESTS = 100  # on their way to one worker
LOOK_AT = 2_000  # tasks looked at in a step
SLICE_SECONDS = 0.005  # of moving tasks that were given back, before the scheduler's loop goes on
UNDECIDED_SECONDS = 0.1  # until it is repeated
PREFIX = "gpudask-recall-"


@dataclass
class Selection:
    """The tasks of one worker to recall: those that are `wanted`, and that come while it goes on, too.

    `progress` is called after the worker's answers.
    """

    ws: WorkerState
    wanted: Callable[[TaskState], bool]
    progress: Callable[[], None]
    left: Iterator[TaskState] | None = None  # of the pass over the worker's tasks that is going on
    is_clean: bool = True  # whether this pass met no wanted task that has not begun


@dataclass
class _WorkerRequests:
    """The requests to one worker and its answers, by the runs of its tasks."""

    ws: WorkerState
    unanswered: set[str] = field(default_factory=set)
    begun: dict[TaskState, str] = field(default_factory=dict)
    selections: list[Selection] = field(default_factory=list)
    request_again_at: float = 0.0  # where a worker could not decide

    def has_begun(self, ts: TaskState) -> bool:
        return self.begun.get(ts) == run_of(ts)

    def forget_ended(self) -> None:
        if self.begun:
            self.begun = {
                ts: run for ts, run in self.begun.items() if ts.processing_on is self.ws and run_of(ts) == run
            }


class Recall:
    """Recalls tasks for one scheduler. `moved` is called when work stealing may have moved a task by itself."""

    def __init__(self, scheduler: Scheduler, moved: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._scheduler = scheduler
        self._moved = moved
        self._requests: dict[str, _WorkerRequests] = {}  # worker's address ->
        self._answers: deque[tuple[Any, str, str, str | None]] = deque()  # key, run, worker's address, state
        self._numbers = itertools.count()
        self._is_processing = False

    def start(self) -> None:
        """Read the answers, before work stealing does."""
        handlers: Any = self._scheduler.stream_handlers
        self._on_other_response = handlers.get("steal-response")
        handlers["steal-response"] = self.on_response

    def select(self, ws: WorkerState, wanted: Callable[[TaskState], bool], progress: Callable[[], None]) -> Selection:
        """Recall all `wanted` tasks of a worker: with each `step` of what is returned, and with each answer."""
        selection = Selection(ws, wanted, progress)
        self._of(ws).selections.append(selection)
        return selection

    def stop(self, selection: Selection) -> None:
        """Request nothing more. Answers to what was requested are acted on."""
        requests = self._requests.get(selection.ws.address)
        if requests is not None and selection in requests.selections:
            requests.selections.remove(selection)
            self._tidy(requests)

    def step(self, selection: Selection) -> bool:
        """Request more tasks; return whether the worker has begun everything wanted that it still has."""
        requests = self._of(selection.ws)
        requests.forget_ended()
        if selection.left is None:
            selection.left, selection.is_clean = iter(tuple(selection.ws.processing)), True
        for _ in range(LOOK_AT):
            if len(requests.unanswered) >= REQUESTS:
                return False
            ts = next(selection.left, None)
            if ts is None:
                selection.left = None
                return selection.is_clean
            if ts.processing_on is selection.ws and not requests.has_begun(ts) and selection.wanted(ts):
                selection.is_clean = False
                self._request(requests, ts)
        return False

    def on_response(self, *, key: Any, state: str | None, stimulus_id: str, worker: str | None = None) -> None:
        """Queue the answer to one of our requests, and hand on those to work stealing's."""
        if stimulus_id.startswith(PREFIX):
            run = stimulus_id[len(PREFIX) :].partition("-")[0]
            self._answers.append((key, run, str(worker), state))
            self._process_soon()
        elif self._on_other_response is not None:
            self._on_other_response(key=key, state=state, stimulus_id=stimulus_id, worker=worker)
            self._moved()

    def forget(self, address: str) -> None:
        """Drop a worker that has gone; distributed gives its tasks to others."""
        self._requests.pop(address, None)

    def _of(self, ws: WorkerState) -> _WorkerRequests:
        requests = self._requests.get(ws.address)
        if requests is None or requests.ws is not ws:
            requests = self._requests[ws.address] = _WorkerRequests(ws)
        return requests

    def _tidy(self, requests: _WorkerRequests) -> None:
        """Forget a worker of which nothing is wanted and nothing expected any more."""
        if not requests.selections:
            requests.begun.clear()
            if not requests.unanswered and self._requests.get(requests.ws.address) is requests:
                del self._requests[requests.ws.address]

    def _request(self, requests: _WorkerRequests, ts: TaskState) -> None:
        run = run_of(ts)
        if run in requests.unanswered or self._loop.time() < requests.request_again_at:
            return
        stealing: Any = self._scheduler.extensions.get("stealing")
        if stealing is not None:
            if ts in stealing.in_flight:
                return  # work stealing requests it at this moment; the next step sees what came of it
            stealing.remove_key_from_stealable(ts)
        message = {"op": "steal-request", "key": ts.key, "stimulus_id": f"{PREFIX}{run}-{next(self._numbers)}"}
        with contextlib.suppress(KeyError, CommClosedError):  # the worker is going
            self._scheduler.stream_comms[requests.ws.address].send(message)
            requests.unanswered.add(run)

    def _process_soon(self) -> None:
        if not self._is_processing and self._answers:
            self._is_processing = True
            self._loop.call_soon(self._process_answers)

    def _process_answers(self) -> None:
        """Process answers for a moment; the rest come in the loop's next turn."""
        self._is_processing = False
        deadline = time.perf_counter() + SLICE_SECONDS
        answered: dict[str, None] = {}
        while self._answers and time.perf_counter() < deadline:
            key, run, address, state = self._answers.popleft()
            answered[address] = None
            try:
                self._process(key, run, address, state)
            except Exception:
                logger.exception("gpudask: the answer of %s on %r was not understood", address, key)
        self._process_soon()
        for address in answered:
            requests = self._requests.get(address)
            for selection in list(requests.selections) if requests is not None else ():
                self.step(selection)
                selection.progress()

    def _process(self, key: Any, run: str, address: str, state: str | None) -> None:
        requests = self._requests.get(address)
        if requests is not None:
            requests.unanswered.discard(run)
            self._tidy(requests)
        ts = self._scheduler.tasks.get(key)
        ws = ts.processing_on if ts is not None else None
        if ts is None or ws is None or ws.address != address or run_of(ts) != run:
            return  # it ended, was cancelled, or runs anew
        if state in GIVEN_BACK:
            reschedule(self._scheduler, ts, f"{PREFIX}{run}")
        elif requests is not None and state in UNDECIDED:
            requests.request_again_at = self._loop.time() + UNDECIDED_SECONDS
        elif requests is not None:
            requests.begun[ts] = run


def run_of(ts: TaskState) -> str:
    """Return the id of a task's present run: another one each time when it is sent to a worker."""
    return str(getattr(ts, "run_id", None))


def reschedule(scheduler: Scheduler, ts: TaskState, stimulus_id: str) -> None:
    """Reschedule a task that its worker gave back. A barrier takes its shuffle along, which begins anew.

    So does distributed when a participant is lost. Otherwise its transfers would count as done, and the barrier would
    find no shuffle.
    """
    ws = ts.processing_on
    shuffle = str(ts.key).removeprefix(BARRIER)
    restart = getattr(scheduler.plugins.get("shuffle"), "_restart_shuffle", None)
    if restart is not None and is_barrier(ts) and shuffle in active_shuffles(scheduler):
        restart(shuffle, scheduler, stimulus_id=stimulus_id)
    if ts.processing_on is ws:
        scheduler._reschedule(ts.key, stimulus_id=stimulus_id)  # noqa: SLF001
