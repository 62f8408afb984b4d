"""The results that would be lost with a leaving worker: where they may go, and their way there.

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

import cloudpickle
from distributed.protocol.serialize import Serialized, deserialize

from . import hostsafe
from .names import pool_of
from .release import Recipes
from .transfers import Transfers, backoff_seconds, plain_words

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from .pools import Pools

logger = logging.getLogger("gpudask.preload")

LOOK_AT = 2_000  # results looked at in a step
WINDOW = 2_000  # results on their way
EXAMINED_AT_ONCE = 1_000  # results that a worker is asked about
EXAMINE_SECONDS = 60.0  # for an answer; a worker answers after a part of that, with what it knows by then
ANSWER_AFTER = 0.1  # of that
EXAMINATIONS = 3  # without an answer: then people are told

EMPTY, MOVING, STUCK = "empty", "moving", "stuck"


@dataclass(frozen=True)
class Places:
    """Workers that can take results: any result, or only those that need nothing which a GPU worker alone has."""

    any_value: frozenset[WorkerState] = frozenset()
    host_safe: frozenset[WorkerState] = frozenset()


def places_for(ws: WorkerState, staying: Iterable[WorkerState], pools: Pools) -> Places:
    """Return where the results of `ws` may go among the workers that stay.

    Workers of its own pool come first: they can hold what it holds. From a pool that accepts any task so can every
    worker that offers all it offers, those that accept any task first, so that results keep no GPU; but from a pool
    with GPUs only to others with GPUs, whatever it offers or accepts. Elsewhere a value must be host-safe.
    """
    others = [other for other in staying if other is not ws]
    if same := frozenset(other for other in others if pool_of(other.name) == pool_of(ws.name)):
        return Places(any_value=same)
    if not pools.is_fenced(ws):
        equals = [
            other
            for other in others
            if ws.resources.keys() <= other.resources.keys() and (pools.has_gpu(other) or not pools.has_gpu(ws))
        ]
        if equals:
            return Places(any_value=_unfenced_first(equals, pools))
    return Places(host_safe=_unfenced_first(others, pools))


def _unfenced_first(workers: list[WorkerState], pools: Pools) -> frozenset[WorkerState]:
    return frozenset(ws for ws in workers if not pools.is_fenced(ws)) or frozenset(workers)


def is_only_copy(ts: TaskState, leaving: Collection[WorkerState]) -> bool:
    """Return whether a result would be lost: every holder is leaving. An actor is not a result."""
    return not ts.actor and all(ws in leaving for ws in ts.who_has or ())


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
    """What is on its way from one worker, and what has nowhere to go or cannot be moved.

    `poke` is called when there is a reason to step again.
    """

    def __init__(self, scheduler: Scheduler, pools: Pools, ws: WorkerState, poke: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._pools = pools
        self._ws = ws
        self._poke = poke
        self._pass: _Pass | None = None
        self._window: dict[Any, TaskState] = {}
        self._stuck: dict[Any, str] = {}  # of the window: key -> why it does not move
        self._places: Places | None = None  # found once a step, where something is to move
        self._outcome = MOVING, "its results are being looked at"
        self._examination = Examination(scheduler, ws, poke)
        self.transfers = Transfers(self._ask)
        self.got_on = False  # whether the last step found something new, or asked for something

    def step(self, leaving: Collection[WorkerState], *, release: bool) -> tuple[str, str]:
        """Go on, and return `EMPTY`, `MOVING` or `STUCK` with words: what the last whole pass showed, or this step.

        `release`: what has a recipe may be lost.
        """
        now = time.monotonic()
        self._places = None
        window = {key: ts for key, ts in self._window.items() if self._is_here(ts, leaving)}
        self.got_on = len(window) < len(self._window)
        self._window = window
        ended = self._walk(leaving, release=release)
        self.got_on |= ended is None
        wanted = {key: ts.get_nbytes() for key, ts in self._window.items()}
        recipients = self._recipients(leaving) if wanted else {}
        self.transfers.step(wanted, recipients, self._scheduler.workers, now)
        self._stuck = self.transfers.stuck(now)
        if ended is not None:
            self._outcome = self._judge(ended)
        elif self._window.keys() - self._stuck.keys():
            self._outcome = MOVING, self._moving(len(self._window), sum(wanted.values()))
        return self._outcome

    def stop(self) -> None:
        """Ask the worker nothing more."""
        self._examination.stop()

    @property
    def is_moving(self) -> bool:
        """Whether results are on their way, so that another step soon may find something new."""
        return bool(self._window) or self._pass is not None

    def _is_here(self, ts: TaskState, leaving: Collection[WorkerState]) -> bool:
        return ts in self._ws.has_what and is_only_copy(ts, leaving)

    def _places_now(self, leaving: Collection[WorkerState]) -> Places:
        if self._places is None:
            staying = [ws for ws in self._scheduler.running if ws not in leaving]
            self._places = places_for(self._ws, staying, self._pools)
        return self._places

    def _recipients(self, leaving: Collection[WorkerState]) -> dict[str, int]:
        """Return the address of each worker that may take results -> bytes that it holds."""
        places = self._places_now(leaving)
        return {ws.address: ws.nbytes for ws in places.any_value or places.host_safe}

    def _walk(self, leaving: Collection[WorkerState], *, release: bool) -> _Pass | None:
        """Look at the next results; return the pass if it ended."""
        if self._pass is None:
            self._pass = _Pass(iter(tuple(self._ws.has_what)))
        current = self._pass
        for _ in range(LOOK_AT):
            ts = next(current.left, None)
            if ts is None:
                self._pass = None
                return current
            if not self._is_here(ts, leaving) or (release and current.recipes.has(ts)):
                continue
            current.results += 1
            current.nbytes += ts.get_nbytes()
            if ts.key not in self._window:
                self._find_place(ts, self._places_now(leaving), current)
        return None

    def _find_place(self, ts: TaskState, places: Places, current: _Pass) -> None:
        need = "" if places.any_value else self._examination.need_of(ts) if places.host_safe else (ts.type or "")
        if need is None:
            current.unexamined += 1
            current.unexamined_bytes += ts.get_nbytes()
        elif need or not (places.any_value or places.host_safe):
            current.nowhere[need or "unknown type"] += 1
            current.nowhere_bytes += ts.get_nbytes()
        elif len(self._window) - len(self._stuck) < WINDOW:
            self._window[ts.key] = ts

    def _judge(self, ended: _Pass) -> tuple[str, str]:
        """Say what a whole pass means."""
        if not ended.results:
            return EMPTY, ""
        n_nowhere = sum(ended.nowhere.values())
        silent = ended.unexamined if self._examination.trouble else 0
        if n_nowhere + silent + len(self._stuck) < ended.results:
            return MOVING, self._moving(ended.results, ended.nbytes)
        words = []
        if ended.nowhere:
            named = ", ".join(f"{n} of {need}" for need, n in ended.nowhere.most_common(3))
            words.append(f"{_results(n_nowhere, ended.nowhere_bytes)} have nowhere to go: {named}")
        if self._stuck:
            (key, why), n = next(iter(self._stuck.items())), len(self._stuck)
            amount = _results(n, sum(self._window[key].get_nbytes() for key in self._stuck))
            more = f", and {n - 1} more" if n > 1 else ""
            words.append(f"{amount} cannot be moved: {str(key)[:80]}: {why}{more}")
        if silent:
            words.append(f"{_results(silent, ended.unexamined_bytes)} cannot be moved: {self._examination.trouble}")
        return STUCK, "; ".join(words)

    def _moving(self, results: int, nbytes: int) -> str:
        what = f"{_results(results, nbytes)} are moving"
        failing = self.transfers.last_words
        return f"{what}; of the last tries one failed: {failing}" if failing else what

    def _ask(self, address: str, keys: list[Any]) -> None:
        self.got_on = True
        self._scheduler.request_acquire_replicas(address, keys, stimulus_id=f"gpudask-evacuate-{time.monotonic()}")


class Examination:
    """What the results of one worker need, as the worker itself says.

    It is asked about some at a time and answers after a few seconds with those that it has done, so whatever a value
    takes, the others are known. One that takes longer is asked for again, after all others.
    """

    def __init__(self, scheduler: Scheduler, ws: WorkerState, poke: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._ws = ws
        self._poke = poke
        self._needs: dict[Any, str] = {}  # key -> "" or what it needs
        self._wanted: dict[Any, None] = {}  # keys to ask about
        self._slow: dict[Any, float] = {}  # key -> since when the worker looks at it
        self._in_vain = 0
        self._asking: asyncio.Task[None] | None = None
        self.trouble = ""  # why people should know that what is not known yet may never be

    def need_of(self, ts: TaskState) -> str | None:
        """Return what a result needs, `""` for nothing; None while it is not known, and ask about it."""
        need = self._needs.get(ts.key)
        if need is None and len(self._wanted) < EXAMINED_AT_ONCE:
            self._wanted[ts.key] = None
            if self._asking is None:
                self._asking = asyncio.ensure_future(self._ask())
        return need

    def stop(self) -> None:
        """Ask nothing more."""
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self) -> None:
        """Ask until everything wanted is known."""
        try:
            while self._wanted:
                try:
                    await self._ask_once(sorted(self._wanted, key=self._slow.__contains__))
                except Exception as error:  # noqa: BLE001 (the answer is the word of whatever runs on the worker)
                    await self._not_answered(f"its answer cannot be read: {type(error).__name__}: {error}")
        finally:
            self._asking = None

    async def _ask_once(self, keys: list[Any]) -> None:
        message = {
            "op": "run_coroutine",
            "function": _by_value(hostsafe.examine),
            "kwargs": cloudpickle.dumps({"keys": keys, "seconds": EXAMINE_SECONDS * ANSWER_AFTER}),
            "wait": True,
        }
        broadcast = self._scheduler.broadcast(msg=message, workers=[self._ws.address], on_error="return")
        asked = asyncio.ensure_future(broadcast)
        try:
            # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the answer.
            await asyncio.wait([asked], timeout=EXAMINE_SECONDS)
            answers = asked.result() if asked.done() else {}
        finally:
            asked.cancel()
        answer = answers.get(self._ws.address, f"no answer within {EXAMINE_SECONDS:g} s")
        if isinstance(answer, dict) and answer.get("status") == "OK":
            self._answered(answer["result"])
        else:
            await self._not_answered(answer)

    def _answered(self, said: Any) -> None:
        if isinstance(said, Serialized):
            said = deserialize(said.header, said.frames)  # type: ignore[no-untyped-call]
        needs = dict(said["needs"])
        self._needs.update(needs)
        for key in [*needs, *said["gone"]]:
            self._wanted.pop(key, None)
            self._slow.pop(key, None)
        now = time.monotonic()
        for key in said["slow"]:
            self._slow.setdefault(key, now)
        self._in_vain, self.trouble = 0, ""
        longest = min(self._slow, key=self._slow.__getitem__, default=None)
        if longest is not None and now - self._slow[longest] > EXAMINE_SECONDS:
            self.trouble = f"after {now - self._slow[longest]:.0f} s it is still being pickled: {str(longest)[:80]}"
        self._poke()

    async def _not_answered(self, answer: Any) -> None:
        said = plain_words(answer.get("exception_text", "")) if isinstance(answer, dict) else str(answer)
        logger.warning("gpudask: %s did not say what its results need: %s", self._ws.name, said)
        self._in_vain += 1
        if self._in_vain >= EXAMINATIONS:
            self.trouble = f"the worker does not say what they need: {said[:150]}"
        self._poke()
        await asyncio.sleep(backoff_seconds(self._in_vain))


def _results(n: int, nbytes: int) -> str:
    return f"{n} results ({nbytes} bytes)"


def _by_value(function: Any) -> bytes:
    """Pickle a function with its module, so that the worker needs nothing of ours."""
    cloudpickle.register_pickle_by_value(hostsafe)
    try:
        return bytes(cloudpickle.dumps(function))
    finally:
        cloudpickle.unregister_pickle_by_value(hostsafe)
