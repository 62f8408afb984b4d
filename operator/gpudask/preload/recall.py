"""Asks a worker to give back the tasks that it has not started, so that they run elsewhere.

Only the worker knows what it has started (the scheduler's picture is a heartbeat old), so each task is asked for by the
message that work stealing uses, and given to another worker when the answer says that it had not begun.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from distributed.scheduler import Scheduler, TaskState, WorkerState

GIVEN_BACK = frozenset({"ready", "constrained", "waiting", "released", None})
ANSWER_SECONDS = 5.0  # then it is asked again: the worker may be busy in a function that holds the GIL


class Recall:
    """One for a scheduler. `moved` is told of each task that stealing may have moved."""

    def __init__(self, scheduler: Scheduler, moved: Callable[[Any], None]) -> None:
        self._scheduler = scheduler
        self._moved = moved
        self._asked: dict[str, tuple[asyncio.Future[bool], TaskState, WorkerState]] = {}
        self._numbers = itertools.count()
        self._stealing_response = scheduler.stream_handlers.get("steal-response")
        scheduler.stream_handlers["steal-response"] = self.on_response

    async def recall(self, ws: WorkerState, tasks: Iterable[TaskState]) -> set[TaskState]:
        """Ask for the tasks; return those that the worker keeps because they have begun."""
        asked = {}
        stealing = self._scheduler.extensions.get("stealing")
        for ts in tasks:
            if stealing is not None:
                if ts in stealing.in_flight:
                    continue  # work stealing asks for it at this moment; whatever comes of it is seen next time
                stealing.remove_key_from_stealable(ts)
            asked[ts] = self._ask(ws, ts)
        if asked:
            await asyncio.wait(asked.values(), timeout=ANSWER_SECONDS)
        kept = {ts for ts, answer in asked.items() if answer.done() and not answer.cancelled() and answer.result()}
        for answer in asked.values():
            answer.cancel()
        return kept

    def on_response(self, *, key: Any, state: str | None, stimulus_id: str, worker: str | None = None) -> None:
        """Take the answer to one of our questions, and hand on those to work stealing's."""
        if stimulus_id not in self._asked:
            if self._stealing_response is not None:
                self._stealing_response(key=key, state=state, stimulus_id=stimulus_id, worker=worker)
                self._moved(key)
            return
        answer, ts, ws = self._asked.pop(stimulus_id)
        is_current = ts.processing_on is ws and self._scheduler.tasks.get(key) is ts
        if state in GIVEN_BACK and is_current:
            # also after our patience has ended: the worker has let go of the task
            self._scheduler._reschedule(key, stimulus_id=stimulus_id)  # noqa: SLF001
        if not answer.done():
            answer.set_result(state not in GIVEN_BACK)

    def forget(self, ws: WorkerState) -> None:
        """Stop waiting for a worker that has gone."""
        for stimulus_id, (answer, _, asked) in list(self._asked.items()):
            if asked is ws:
                del self._asked[stimulus_id]
                answer.cancel()

    def _ask(self, ws: WorkerState, ts: TaskState) -> asyncio.Future[bool]:
        stimulus_id = f"gpudask-recall-{self._scheduler.id}-{next(self._numbers)}"
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asked[stimulus_id] = (answer, ts, ws)
        self._scheduler.stream_comms[ws.address].send(
            {"op": "steal-request", "key": ts.key, "stimulus_id": stimulus_id}
        )
        return answer
