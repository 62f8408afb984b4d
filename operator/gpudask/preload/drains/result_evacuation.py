"""Evacuation of the results that would be lost with a retiring worker: who may take them, and their moves.

Other workers copy them; none is computed again. A worker may hold a million results, so they are looked at in slices, a
*pass* at a time, and a bounded *window* of them moves at once. The worker is empty when a whole pass met none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..pools import pool_of
from ..workers import result_of, run_on_worker
from . import gpu_results
from .result_release import Recipes
from .result_transfers import Transfers, backoff_seconds, short_error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from ..pools import Pools

logger = logging.getLogger("gpudask.preload")

LOOK_AT = 2_000  # results looked at in a step
WINDOW = 2_000  # results on their way
EXAMINED_AT_ONCE = 1_000  # results that a worker examines in one request
EXAMINE_SECONDS = 60.0  # for an answer; a worker answers after a part of that, with what it knows by then
ANSWER_AFTER = 0.1  # of that
EXAMINATIONS = 3  # without an answer: then it is reported

EMPTY, MOVING, STUCK = "empty", "moving", "stuck"
NOT_KNOWN = MOVING, "its results are being looked at"  # before a whole pass has ended


@dataclass(frozen=True)
class Recipients:
    """Workers that can take results: any result, or only those that need nothing which a GPU worker alone has."""

    any_result: frozenset[WorkerState] = frozenset()
    host_result: frozenset[WorkerState] = frozenset()


def recipients_for(ws: WorkerState, staying: Iterable[WorkerState], pools: Pools) -> Recipients:
    """Return where the results of `ws` may go among the workers that stay.

    Workers of its own pool come first: they can hold what it holds. From a pool that accepts any task so can every
    worker that offers all it offers, those that accept any task first, so that results keep no GPU; but from a pool
    with GPUs only to others with GPUs, whatever it offers or accepts. Elsewhere a value must
    need no GPU worker (see `gpu_results`).
    """
    others = [other for other in staying if other is not ws]
    if same := frozenset(other for other in others if pool_of(other.name) == pool_of(ws.name)):
        return Recipients(any_result=same)
    if not pools.is_fenced(ws):
        equals = [
            other
            for other in others
            if ws.resources.keys() <= other.resources.keys() and (pools.has_gpu(other) or not pools.has_gpu(ws))
        ]
        if equals:
            return Recipients(any_result=_unfenced_first(equals, pools))
    return Recipients(host_result=_unfenced_first(others, pools))


def _unfenced_first(workers: list[WorkerState], pools: Pools) -> frozenset[WorkerState]:
    return frozenset(ws for ws in workers if not pools.is_fenced(ws)) or frozenset(workers)


def is_only_copy(ts: TaskState, retiring: Collection[WorkerState]) -> bool:
    """Return whether a result would be lost: every holder is retiring. An actor is not a result."""
    return not ts.actor and all(ws in retiring for ws in ts.who_has or ())


@dataclass
class _Pass:
    """One walk over a worker's results, and what it has met so far of those that would be lost."""

    left: Iterator[TaskState]
    recipes: Recipes = field(default_factory=Recipes)
    results: int = 0
    nbytes: int = 0
    nowhere: Counter[str] = field(default_factory=Counter)  # what they need, or their type
    nowhere_bytes: int = 0
    unexamined: int = 0
    unexamined_bytes: int = 0


class Evacuation:
    """Moves the results of one worker, and reports those that have nowhere to go or cannot be moved.

    `wake` is called when there is a reason to step again.
    """

    def __init__(self, scheduler: Scheduler, pools: Pools, ws: WorkerState, wake: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._pools = pools
        self._ws = ws
        self._wake = wake
        self._pass: _Pass | None = None
        self._window: dict[Any, TaskState] = {}
        self._stuck: dict[Any, str] = {}  # of the window: key -> why it does not move
        self._found: Recipients | None = None  # found once a step, where something is to move
        self._outcome = NOT_KNOWN
        self._examination = Examination(scheduler, ws, wake)
        self.transfers = Transfers(self._send)
        self.got_on = False  # whether the last step found something new, or requested something

    def step(self, retiring: Collection[WorkerState], *, release: bool) -> tuple[str, str]:
        """Go on, and return `EMPTY`, `MOVING` or `STUCK` with a message: what the last whole pass showed, or this step.

        `release`: what has a recipe may be lost.
        """
        now = time.monotonic()
        self._found = None
        window = {key: ts for key, ts in self._window.items() if self._is_here(ts, retiring)}
        self.got_on = len(window) < len(self._window)
        self._window = window
        ended = self._walk(retiring, release=release)
        self.got_on |= ended is None
        wanted = {key: ts.get_nbytes() for key, ts in self._window.items()}
        recipients = self._held_by_recipient(retiring) if wanted else {}
        self.transfers.step(wanted, recipients, self._scheduler.workers, now)
        self._stuck = self.transfers.stuck(now)
        if ended is not None:
            self._outcome = self._evaluate(ended)
        elif self._window.keys() - self._stuck.keys():
            self._outcome = MOVING, self._moving(len(self._window), sum(wanted.values()))
        return self._outcome

    def start_anew(self) -> None:
        """Forget what the passes showed: tasks may leave results, which only a pass that begins later meets."""
        self._pass = None
        self._outcome = NOT_KNOWN

    def stop(self) -> None:
        """Examine nothing more."""
        self._examination.stop()

    @property
    def is_moving(self) -> bool:
        """Whether results are on their way, so that another step soon may find something new."""
        return bool(self._window) or self._pass is not None

    def _is_here(self, ts: TaskState, retiring: Collection[WorkerState]) -> bool:
        return ts in self._ws.has_what and is_only_copy(ts, retiring)

    def _recipients(self, retiring: Collection[WorkerState]) -> Recipients:
        if self._found is None:
            staying = [ws for ws in self._scheduler.running if ws not in retiring]
            self._found = recipients_for(self._ws, staying, self._pools)
        return self._found

    def _held_by_recipient(self, retiring: Collection[WorkerState]) -> dict[str, int]:
        """Return the address of each worker that may take results -> bytes that it holds."""
        recipients = self._recipients(retiring)
        return {ws.address: ws.nbytes for ws in recipients.any_result or recipients.host_result}

    def _walk(self, retiring: Collection[WorkerState], *, release: bool) -> _Pass | None:
        """Look at the next results; return the pass if it ended."""
        if self._pass is None:
            self._pass = _Pass(iter(tuple(self._ws.has_what)))
        current = self._pass
        for _ in range(LOOK_AT):
            ts = next(current.left, None)
            if ts is None:
                self._pass = None
                return current
            if not self._is_here(ts, retiring) or (release and current.recipes.has(ts)):
                continue
            current.results += 1
            current.nbytes += ts.get_nbytes()
            if ts.key not in self._window:
                self._find_recipient(ts, self._recipients(retiring), current)
        return None

    def _find_recipient(self, ts: TaskState, recipients: Recipients, current: _Pass) -> None:
        need: str | None = ts.type or ""
        if recipients.any_result:
            need = ""
        elif recipients.host_result:
            need = self._examination.need_of(ts)
        if need is None:
            current.unexamined += 1
            current.unexamined_bytes += ts.get_nbytes()
        elif need or not (recipients.any_result or recipients.host_result):
            current.nowhere[need or "unknown type"] += 1
            current.nowhere_bytes += ts.get_nbytes()
        elif len(self._window) - len(self._stuck) < WINDOW:
            self._window[ts.key] = ts

    def _evaluate(self, ended: _Pass) -> tuple[str, str]:
        """Return the outcome of a whole pass."""
        if not ended.results:
            return EMPTY, ""
        n_nowhere = sum(ended.nowhere.values())
        silent = ended.unexamined if self._examination.error else 0
        if n_nowhere + silent + len(self._stuck) < ended.results:
            return MOVING, self._moving(ended.results, ended.nbytes)
        messages = []
        if ended.nowhere:
            named = ", ".join(f"{n} of {need}" for need, n in ended.nowhere.most_common(3))
            messages.append(f"{_results(n_nowhere, ended.nowhere_bytes)} have nowhere to go: {named}")
        if self._stuck:
            (key, why), n = next(iter(self._stuck.items())), len(self._stuck)
            amount = _results(n, sum(self._window[key].get_nbytes() for key in self._stuck))
            more = f", and {n - 1} more" if n > 1 else ""
            messages.append(f"{amount} cannot be moved: {str(key)[:80]}: {why}{more}")
        if silent:
            messages.append(f"{_results(silent, ended.unexamined_bytes)} cannot be moved: {self._examination.error}")
        return STUCK, "; ".join(messages)

    def _moving(self, results: int, nbytes: int) -> str:
        what = f"{_results(results, nbytes)} are moving"
        failing = self.transfers.last_error
        return f"{what}; of the last tries one failed: {failing}" if failing else what

    def _send(self, address: str, keys: list[Any]) -> None:
        self.got_on = True
        self._scheduler.request_acquire_replicas(address, keys, stimulus_id=f"gpudask-evacuate-{time.monotonic()}")


class Examination:
    """Finds which results of one worker need a GPU worker: the worker itself examines them.

    It gets some at a time and answers after a few seconds with those that it has done, so whatever a value takes, the
    others are known. One that takes longer is requested again, after all others.
    """

    def __init__(self, scheduler: Scheduler, ws: WorkerState, wake: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._ws = ws
        self._wake = wake
        self._needs: dict[Any, str] = {}  # key -> "" or what it needs
        self._wanted: dict[Any, None] = {}  # keys to examine
        self._slow: dict[Any, float] = {}  # key -> since when the worker examines it
        self._failures = 0
        self._examining: asyncio.Task[None] | None = None
        self.error = ""  # why what is not known yet may never be

    def need_of(self, ts: TaskState) -> str | None:
        """Return what a result needs, `""` for nothing; None while it is not known: then it is examined."""
        need = self._needs.get(ts.key)
        if need is None and len(self._wanted) < EXAMINED_AT_ONCE:
            self._wanted[ts.key] = None
            if self._examining is None:
                self._examining = asyncio.ensure_future(self._examine())
        return need

    def stop(self) -> None:
        """Examine nothing more."""
        if self._examining is not None:
            self._examining.cancel()

    async def _examine(self) -> None:
        """Examine until everything wanted is known."""
        try:
            while self._wanted:
                try:
                    await self._examine_once(sorted(self._wanted, key=self._slow.__contains__))
                except Exception as error:  # noqa: BLE001 (the answer is of whatever runs on the worker)
                    await self._not_answered(f"its answer cannot be read: {type(error).__name__}: {error}")
        finally:
            self._examining = None

    async def _examine_once(self, keys: list[Any]) -> None:
        seconds = EXAMINE_SECONDS * ANSWER_AFTER
        examination = asyncio.ensure_future(
            run_on_worker(self._scheduler, self._ws, gpu_results.examine, keys=keys, seconds=seconds)
        )
        try:
            # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the answer.
            await asyncio.wait([examination], timeout=EXAMINE_SECONDS)
            answer = examination.result() if examination.done() else None
        finally:
            examination.cancel()
        if isinstance(answer, dict) and answer.get("status") == "OK":
            self._answered(result_of(answer))
        else:
            await self._not_answered(f"no answer within {EXAMINE_SECONDS:g} s" if answer is None else answer)

    def _answered(self, answer: Any) -> None:
        needs = dict(answer["needs"])
        self._needs.update(needs)
        for key in [*needs, *answer["gone"]]:
            self._wanted.pop(key, None)
            self._slow.pop(key, None)
        now = time.monotonic()
        for key in answer["slow"]:
            self._slow.setdefault(key, now)
        self._failures, self.error = 0, ""
        longest = min(self._slow, key=self._slow.__getitem__, default=None)
        if longest is not None and now - self._slow[longest] > EXAMINE_SECONDS:
            self.error = f"after {now - self._slow[longest]:.0f} s it is still being pickled: {str(longest)[:80]}"
        self._wake()

    async def _not_answered(self, answer: Any) -> None:
        error = short_error(answer.get("exception_text", "")) if isinstance(answer, dict) else str(answer)
        logger.warning("gpudask: %s did not say what its results need: %s", self._ws.name, error)
        self._failures += 1
        if self._failures >= EXAMINATIONS:
            self.error = f"the worker does not say what they need: {error[:150]}"
        self._wake()
        await asyncio.sleep(backoff_seconds(self._failures))


def _results(n: int, nbytes: int) -> str:
    return f"{n} results ({nbytes} bytes)"
