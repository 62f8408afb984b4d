"""Takes tasks back that a worker has queued and not begun, so that they run elsewhere.

Only the worker knows what it has begun (the scheduler's picture is a heartbeat old), so each task is asked for by the
message that work stealing uses, and given to another worker when the answer says that it had not begun.

A worker that answers so has let go of the task: such an answer is always acted on, whether the question still matters
or not, and names the run that it is about. A question is forgotten only with its worker. Answers come in batches and
each moves a task, so they are worked off in slices, and only so many questions are on their way to a worker at once.
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

from .shuffle import reschedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distributed.scheduler import Scheduler, TaskState, WorkerState

logger = logging.getLogger("gpudask.preload")

GIVEN_BACK = frozenset({"ready", "constrained", "waiting", "released", None})
UNDECIDED = frozenset({"cancelled", "resumed"})  # the worker does one thing and is to do another: it is asked again
QUESTIONS = 100  # on their way to one worker
LOOK_AT = 2_000  # tasks looked at in a step
SLICE_SECONDS = 0.005  # of moving tasks that were given back, before the scheduler's loop goes on
UNDECIDED_SECONDS = 0.1  # until such a worker is asked again
PREFIX = "gpudask-recall-"


@dataclass
class Taking:
    """What takes back the wanted tasks of one worker, and those that come while it goes on as well.

    `progress` is told of the worker's answers.
    """

    ws: WorkerState
    wanted: Callable[[TaskState], bool]
    progress: Callable[[], None]
    left: Iterator[TaskState] | None = None  # of the pass over the worker's tasks that is going on
    is_clean: bool = True  # whether this pass met no wanted task that has not begun


@dataclass
class _Asked:
    """What one worker was asked and has answered, by the runs of its tasks."""

    ws: WorkerState
    unanswered: set[str] = field(default_factory=set)
    begun: dict[TaskState, str] = field(default_factory=dict)
    takings: list[Taking] = field(default_factory=list)
    ask_again_at: float = 0.0  # where a worker could not decide

    def has_begun(self, ts: TaskState) -> bool:
        return self.begun.get(ts) == run_of(ts)

    def forget_ended(self) -> None:
        if self.begun:
            self.begun = {
                ts: run for ts, run in self.begun.items() if ts.processing_on is self.ws and run_of(ts) == run
            }


class Recall:
    """The questions of one scheduler. `moved` is told when work stealing may have moved a task, unseen."""

    def __init__(self, scheduler: Scheduler, moved: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._scheduler = scheduler
        self._moved = moved
        self._asked: dict[str, _Asked] = {}  # worker's address ->
        self._answers: deque[tuple[Any, str, str, str | None]] = deque()  # key, run, worker's address, state
        self._numbers = itertools.count()
        self._is_working = False
        self._on_other_response = scheduler.stream_handlers.get("steal-response")
        scheduler.stream_handlers["steal-response"] = self.on_response

    def take(self, ws: WorkerState, wanted: Callable[[TaskState], bool], progress: Callable[[], None]) -> Taking:
        """Return what takes back all `wanted` tasks of a worker: with each `step`, and with each answer."""
        taking = Taking(ws, wanted, progress)
        self._of(ws).takings.append(taking)
        return taking

    def stop(self, taking: Taking) -> None:
        """Ask for nothing more. What was asked for is acted on."""
        asked = self._asked.get(taking.ws.address)
        if asked is not None and taking in asked.takings:
            asked.takings.remove(taking)
            self._tidy(asked)

    def step(self, taking: Taking) -> bool:
        """Ask for more; return whether the worker has begun everything wanted that it still has."""
        asked = self._of(taking.ws)
        asked.forget_ended()
        if taking.left is None:
            taking.left, taking.is_clean = iter(tuple(taking.ws.processing)), True
        for _ in range(LOOK_AT):
            if len(asked.unanswered) >= QUESTIONS:
                return False
            ts = next(taking.left, None)
            if ts is None:
                taking.left = None
                return taking.is_clean
            if ts.processing_on is taking.ws and not asked.has_begun(ts) and taking.wanted(ts):
                taking.is_clean = False
                self._ask(asked, ts)
        return False

    def on_response(self, *, key: Any, state: str | None, stimulus_id: str, worker: str | None = None) -> None:
        """Note the answer to one of our questions, and hand on those to work stealing's."""
        if stimulus_id.startswith(PREFIX):
            run = stimulus_id[len(PREFIX) :].partition("-")[0]
            self._answers.append((key, run, str(worker), state))
            self._work_soon()
        elif self._on_other_response is not None:
            self._on_other_response(key=key, state=state, stimulus_id=stimulus_id, worker=worker)
            self._moved()

    def forget(self, address: str) -> None:
        """Drop a worker that has gone; distributed gives its tasks to others."""
        self._asked.pop(address, None)

    def _of(self, ws: WorkerState) -> _Asked:
        asked = self._asked.get(ws.address)
        if asked is None or asked.ws is not ws:
            asked = self._asked[ws.address] = _Asked(ws)
        return asked

    def _tidy(self, asked: _Asked) -> None:
        """Forget a worker of which nothing is wanted and nothing expected any more."""
        if not asked.takings:
            asked.begun.clear()
            if not asked.unanswered and self._asked.get(asked.ws.address) is asked:
                del self._asked[asked.ws.address]

    def _ask(self, asked: _Asked, ts: TaskState) -> None:
        run = run_of(ts)
        if run in asked.unanswered or self._loop.time() < asked.ask_again_at:
            return
        stealing: Any = self._scheduler.extensions.get("stealing")
        if stealing is not None:
            if ts in stealing.in_flight:
                return  # work stealing asks for it at this moment; whatever comes of it is seen next time
            stealing.remove_key_from_stealable(ts)
        message = {"op": "steal-request", "key": ts.key, "stimulus_id": f"{PREFIX}{run}-{next(self._numbers)}"}
        with contextlib.suppress(KeyError, CommClosedError):  # the worker is going
            self._scheduler.stream_comms[asked.ws.address].send(message)
            asked.unanswered.add(run)

    def _work_soon(self) -> None:
        if not self._is_working and self._answers:
            self._is_working = True
            self._loop.call_soon(self._work)

    def _work(self) -> None:
        """Act on answers for a moment; the rest come in the loop's next turn."""
        self._is_working = False
        deadline = time.perf_counter() + SLICE_SECONDS
        heard: dict[str, None] = {}
        while self._answers and time.perf_counter() < deadline:
            key, run, address, state = self._answers.popleft()
            heard[address] = None
            try:
                self._act(key, run, address, state)
            except Exception:
                logger.exception("gpudask: the answer of %s on %r was not understood", address, key)
        self._work_soon()
        for address in heard:
            asked = self._asked.get(address)
            for taking in list(asked.takings) if asked is not None else ():
                self.step(taking)
                taking.progress()

    def _act(self, key: Any, run: str, address: str, state: str | None) -> None:
        asked = self._asked.get(address)
        if asked is not None:
            asked.unanswered.discard(run)
            self._tidy(asked)
        ts = self._scheduler.tasks.get(key)
        ws = ts.processing_on if ts is not None else None
        if ts is None or ws is None or ws.address != address or run_of(ts) != run:
            return  # it ended, was cancelled, or runs anew
        if state in GIVEN_BACK:
            reschedule(self._scheduler, ts, f"{PREFIX}{run}")
        elif asked is not None and state in UNDECIDED:
            asked.ask_again_at = self._loop.time() + UNDECIDED_SECONDS
        elif asked is not None:
            asked.begun[ts] = run


def run_of(ts: TaskState) -> str:
    """Return which run of a task this is: another one each time when it is sent to a worker."""
    return str(getattr(ts, "run_id", None))
