"""One worker's way out: closed to new tasks, its queue given back, its running tasks ended, its results moved.

The drain looks at the worker as it is and takes the next step, again and again, also when the worker is drained:
whatever happens meanwhile (a recipient dies, a worker joins, the client drops a future) is seen at the next look.
`retire_workers` is not used: it moves data before tasks end, gives up silently, and reopens the worker where it finds
no place.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from distributed.core import Status

from .evacuate import Evacuation, Left, only_copies
from .let_go import let_go
from .workers import describe, in_shuffle

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from .desired import Retiring
    from .pools import Pools
    from .recall import Recall

logger = logging.getLogger("gpudask.preload")

DRAINING, BLOCKED, DRAINED = "draining", "blocked", "drained"
SOON_SECONDS, LATER_SECONDS = 0.02, 0.5
LOOK_SHARE = 0.05  # of the event loop's time may go into looking at one worker's results
OPEN = (Status.running, Status.paused)


class Drain:
    """The drain of one worker. `changed` is told when its state is another."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        pools: Pools,
        recall: Recall,
        ws: WorkerState,
        leaving: Callable[[], set[WorkerState]],
        changed: Callable[[], None],
    ) -> None:
        self.state, self.blocker, self.detail = DRAINING, "", ""
        self.wish: Retiring | None = None
        self.has_closed = False  # a worker that closes for reasons of its own is not ours to open
        self.ws = ws
        self._scheduler = scheduler
        self._recall = recall
        self._leaving = leaving
        self._changed = changed
        self._evacuation = Evacuation(scheduler, pools, ws)
        self._begun: set[tuple[Any, Any]] = set()  # (key, run) that the worker says it has begun
        self._poke = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._look_seconds = 0.0  # what the last walk over the worker's results took

    def start(self, wish: Retiring) -> None:
        """Begin, and close the worker in this very moment if it can be."""
        self.wish = wish
        self.close()
        self._task = asyncio.create_task(self._run())

    def poke(self) -> None:
        """Look again soon: something has changed."""
        self._poke.set()

    def transfer_failed(self, keys: list[Any], address: str, words: str) -> None:
        """Take the word of the worker at `address`: it could not copy `keys`. It may be about others' copies."""
        if self._evacuation.transfers.failed(keys, address, words):
            self.poke()

    def not_found(self, keys: list[Any], address: str) -> None:
        """Take the word of the worker at `address`: it knows nobody to copy `keys` from."""
        if self._evacuation.transfers.not_found(keys, address):
            self.poke()

    def stop(self) -> None:
        """End the drain without a word to the worker."""
        if self._task is not None:
            self._task.cancel()
        self._recall.forget(self.ws)

    def undo(self) -> None:
        """End the drain and open the worker again."""
        self.stop()
        if self.has_closed and self.ws.status == Status.closing_gracefully and self.is_known():
            self._set_status(Status.running)

    def close(self) -> None:
        """Close the worker to new tasks, unless it is not up yet or a shuffle needs tasks to run there."""
        if self.ws.status in OPEN and self.ws not in in_shuffle(self._scheduler):
            self.has_closed = True
            self._set_status(Status.closing_gracefully)

    def end(self) -> None:
        """Let go what was not moved: the worker ends now. Until now it could be fetched."""
        if self.state == DRAINED and self.wish is not None and self.wish.data == "release":
            let_go(self._scheduler, self.ws, only_copies(self.ws, self._leaving()))

    def is_known(self) -> bool:
        """Return whether the worker is still there."""
        return self._scheduler.workers.get(self.ws.address) is self.ws

    def _set_status(self, status: Status) -> None:
        stimulus_id = f"gpudask-retire-{time.monotonic()}"
        self._scheduler.handle_worker_status_change(status, self.ws, stimulus_id)
        self._scheduler.stream_comms[self.ws.address].send(
            {"op": "worker-status-change", "status": status.name, "stimulus_id": stimulus_id}
        )

    async def _run(self) -> None:
        while self.is_known():
            self._poke.clear()
            try:
                await self._step()
                pause_seconds = SOON_SECONDS if self.state == DRAINING else LATER_SECONDS
            except Exception:
                logger.exception("gpudask: the drain of %s goes on after an error", self.ws.name)
                pause_seconds = LATER_SECONDS
            await self._pause(pause_seconds)

    async def _pause(self, pause_seconds: float) -> None:
        """Wait for a poke or a while, and at least so long that looking stays cheap."""
        await asyncio.sleep(self._look_seconds / LOOK_SHARE)
        poked = asyncio.ensure_future(self._poke.wait())
        await asyncio.wait([poked], timeout=pause_seconds)
        poked.cancel()

    async def _step(self) -> None:
        """Look at the worker and do what is next."""
        self.close()
        ws = self.ws
        if ws.status != Status.closing_gracefully:
            self._set(DRAINING, "", "a shuffle runs" if ws.status in OPEN else f"the worker is {ws.status.name}")
        elif ws.processing:
            self._set(DRAINING, "", describe(ws))
            await self._give_back()
        elif ws.actors:
            self._set(BLOCKED, "", describe(ws))
        elif self.wish is not None and self.wish.data == "release":
            self._set(DRAINED, "", "")
        else:
            await self._evacuate()

    async def _give_back(self) -> None:
        now = {(ts.key, _run_id(ts)): ts for ts in self.ws.processing}
        self._begun &= now.keys()
        kept = await self._recall.recall(self.ws, [ts for run, ts in now.items() if run not in self._begun])
        self._begun |= {run for run, ts in now.items() if ts in kept}

    async def _evacuate(self) -> None:
        leaving = self._leaving()
        started = time.monotonic()
        only = only_copies(self.ws, leaving)
        self._look_seconds = time.monotonic() - started
        if not only:
            self._set(DRAINED, "", "")
            return
        left = await self._evacuation.move(only, leaving)
        self._look_seconds += self._evacuation.look_seconds
        if not left or len(left) < len(only):
            failing = self._evacuation.transfers.last_words
            what = f"{_results(only)} are moving"
            self._set(DRAINING, "", f"{what}; of the last tries one failed: {failing}" if failing else what)
        else:
            self._set(BLOCKED, "data", _stuck(left))

    def _set(self, state: str, blocker: str, detail: str) -> None:
        self.detail = detail
        if (state, blocker) != (self.state, self.blocker):
            self.state, self.blocker = state, blocker
            self._changed()


def _run_id(ts: TaskState) -> Any:
    return getattr(ts, "run_id", None)


def _stuck(left: Left) -> str:
    """Name what has no place by its types, and what cannot be moved by its first error."""
    words = []
    if left.nowhere:
        types = Counter(need or ts.type or "unknown type" for ts, need in left.nowhere)
        named = ", ".join(f"{n} of {name}" for name, n in types.most_common(3))
        words.append(f"{_results([ts for ts, _ in left.nowhere])} have nowhere to go: {named}")
    if left.unmovable:
        (ts, why), n = left.unmovable[0], len(left.unmovable)
        first = f"{str(ts.key)[:80]}: {why}" + (f", and {n - 1} more" if n > 1 else "")
        words.append(f"{_results([ts for ts, _ in left.unmovable])} cannot be moved: {first}")
    return "; ".join(words)


def _results(tasks: list[TaskState]) -> str:
    return f"{len(tasks)} results ({sum(ts.get_nbytes() for ts in tasks)} bytes)"
