"""Rebalancing of waiting restricted tasks over the workers that can run them, at once when one joins.

distributed gives all tasks that wait for a resource to the first worker which offers it, and its work stealing moves
them slowly while other workers have nothing to do. Here the waiting ones move by work stealing's own request, to which
only a task that has not begun says yes. Each worker gets a few seconds of work ahead, again and again: so little is
moved in vain, whatever comes or goes, and nothing holds the scheduler's loop for long.

Bounded: tasks looked at and requests in a slice, requests on their way, and a share of the loop's time.
Switched off, with all work stealing, by `distributed.scheduler.work-stealing: False`.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
import operator
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .drains.recall import GIVEN_BACK, reschedule
from .part import Part
from .requirements import Requirement, requirement_of, slots_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from .demand import Demand
    from .watch import Watch

logger = logging.getLogger("gpudask.preload")

NEEDED = ("move_task_request", "in_flight", "in_flight_tasks", "in_flight_occupancy")  # of distributed's work stealing
AHEAD_SECONDS = 3.0  # of work that a worker gets at once
AHEAD_TASKS = 2  # a slot, where a task takes longer
MOVE_SECONDS = 0.1  # what a move costs all who take part: less is not worth it (distributed's stealing reckons so, too)
REQUESTS = 200  # on their way at any time: the answers of a worker come in one message, which is handled at one go
REQUESTS_OF_ONE = 100  # to one worker: one that does not answer must not hold up the others
LOOK_AT = 2_000  # tasks in a slice
SLICE_SECONDS = 0.005  # then other requirements come in the next slice
FRUITLESS_SECONDS = 1.0  # until a worker that had nothing to give is looked at again, or until a worker joins
PAUSE_SECONDS = 0.01  # between slices, while there is more to move
# Of the loop's CPU time may go into slices: while all have their share, on the search for tasks that may go, into moves
LOOK_SHARE, SEARCH_SHARE, MOVE_SHARE = 0.01, 0.05, 0.2


class Rebalance(Part):
    """Moves waiting tasks of one scheduler. `may_get_work` says whether a running worker should get more of it."""

    feature = "rebalance"
    attributes = ("running", "extensions", "stream_handlers")
    methods = MappingProxyType(
        {
            "_reschedule": ("key", "stimulus_id"),
            "valid_workers": ("ts",),
            "get_comm_cost": ("ts", "ws"),
            "_get_prefix_duration": ("prefix",),
        }
    )
    depends_on = MappingProxyType({"demand": "without demand nobody knows which tasks wait"})

    def __init__(
        self, scheduler: Scheduler, demand: Demand, watch: Watch, may_get_work: Callable[[WorkerState], bool]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._scheduler: Any = scheduler
        self._demand = demand
        self._watch = watch
        self._may_get_work = may_get_work
        self._timer: asyncio.TimerHandle | None = None
        self._later: asyncio.TimerHandle | None = None
        self._rests_until = -math.inf
        self._requested: dict[str, tuple[TaskState, WorkerState, WorkerState]] = {}  # request -> task, giver, taker
        self._begun: dict[TaskState, WorkerState] = {}  # what a worker would not give, and which
        self._fruitless: dict[tuple[WorkerState, Requirement], float] = {}  # when it is looked at again
        # How far, and of how many at first, where a worker has more tasks than fit into a slice.
        self._looked_at: dict[WorkerState, tuple[int, int]] = {}
        self._next = 0  # which of the requirements comes first in the next slice
        self._is_searching = False  # whether the last slice ended before all that may be given was looked at
        self.error = ""  # the traceback of the last slice that failed, until one moves something

    def start(self) -> None:
        """Follow work stealing, unless the user wants no task to be moved.

        Raises `NotImplementedError` for another distributed.
        """
        self._stealing: Any = self._scheduler.extensions.get("stealing")
        if self._stealing is None:
            logger.info("gpudask: no rebalancing, because distributed.scheduler.work-stealing is off")
            return
        lacking = [name for name in NEEDED if not hasattr(self._stealing, name)]
        if lacking:
            raise NotImplementedError(f"WorkStealing.{lacking[0]} is missing")
        handlers = self._scheduler.stream_handlers
        self._on_response, handlers["steal-response"] = handlers["steal-response"], self.on_response
        self._on_status, handlers["worker-status-change"] = handlers["worker-status-change"], self.on_status
        self._watch.add_listener(self.schedule)

    def stop(self) -> None:
        """Move nothing more."""
        for timer in (self._timer, self._later):
            if timer is not None:
                timer.cancel()

    def schedule(self) -> None:
        """Begin a slice, as soon as it may take time again, if there may be something to move."""
        if self._timer is None and (self._demand.has_restricted or self._remembers):
            self._timer = self._loop.call_at(max(self._loop.time(), self._rests_until), self._on_timer)

    @property
    def _remembers(self) -> bool:
        """Whether there is anything that `_drop_outdated` could drop."""
        return bool(self._requested or self._begun or self._fruitless or self._looked_at)

    def on_status(self, **message: Any) -> None:
        """Follow a worker that becomes ready: only now it may be given tasks."""
        self._on_status(**message)
        self._fruitless.clear()
        self.schedule()

    def on_response(self, *, key: Any, state: str | None, stimulus_id: str, worker: str | None = None) -> None:
        """Process a worker's answer: a task that it gives back goes elsewhere if the taker takes no more by now."""
        about = self._requested.pop(stimulus_id, None)
        if about is not None and self._is_on_its_way(about[0], stimulus_id):
            ts, giver, taker = about
            if state not in GIVEN_BACK:
                self._begun[ts] = giver
            elif not self._may_take(taker, requirement_of(ts)):
                reschedule(self._scheduler, ts, stimulus_id)
                return
        self._on_response(key=key, state=state, stimulus_id=stimulus_id, worker=worker)

    def _on_timer(self) -> None:
        self._timer = None
        started = time.thread_time()
        requests = 0
        try:
            requests = self._slice()
        except Exception:
            logger.exception("gpudask: waiting tasks stay where they are for now")
            self._set_error(traceback.format_exc())
            self._schedule_later()
        else:
            if requests:
                self._set_error("")
        seconds = time.thread_time() - started
        share = MOVE_SHARE if requests else SEARCH_SHARE if self._is_searching else LOOK_SHARE
        self._rests_until = self._loop.time() + max(PAUSE_SECONDS, seconds / share)
        if requests or self._is_searching:
            self.schedule()

    def _set_error(self, error: str) -> None:
        is_news = bool(error) != bool(self.error)
        self.error = error
        if is_news:
            self._watch.publish_now()

    def _slice(self) -> int:
        """Request the first tasks of what should move now, and return how many."""
        self._drop_outdated()
        self._is_searching = False
        requests, left = 0, LOOK_AT
        deadline = time.perf_counter() + SLICE_SECONDS
        assigned = list(self._demand.assigned().items())
        first = self._next % len(assigned) if assigned else 0
        for i, (requirement, seconds) in enumerate(assigned[first:] + assigned[:first]):
            if i and time.perf_counter() > deadline:
                self._is_searching, self._next = True, first + i  # with these the next slice begins
                return requests
            loads = self._loads(requirement)
            each = max(seconds, 1e-4)
            rounds, slack = max(AHEAD_TASKS, AHEAD_SECONDS / each), max(0.0, MOVE_SECONDS / each - 1)
            moves = spread(loads, rounds=rounds, slack=slack, most=REQUESTS - len(self._requested))
            by_giver: dict[WorkerState, Counter[WorkerState]] = {}
            for (giver, taker), n in moves.items():
                by_giver.setdefault(giver, Counter())[taker] = n
            for giver, takers in by_giver.items():
                if left <= 0:
                    self._is_searching = True
                    return requests
                looked, asked = self._give(giver, requirement, takers, left)
                requests += asked
                left -= looked
        return requests

    def _loads(self, requirement: Requirement) -> dict[WorkerState, Load]:
        """Return the workers that can run such tasks, less those that had nothing to give lately."""
        in_flight = self._stealing.in_flight_tasks
        loads = {}
        for ws in self._scheduler.running:
            slots = slots_of(ws, requirement) if ws.resources else 0
            if slots:
                tasks = len(ws.processing) - len(ws.long_running) + in_flight.get(ws, 0)
                if tasks > slots and (ws, requirement) in self._fruitless:
                    continue
                loads[ws] = Load(slots, tasks, self._may_get_work(ws))
        return loads

    def _give(
        self, giver: WorkerState, requirement: Requirement, takers: Counter[WorkerState], look_at: int
    ) -> tuple[int, int]:
        """Request tasks of one worker, the most urgent first; return how many were looked at, and requested."""
        most = REQUESTS_OF_ONE - sum(1 for _, other, _ in self._requested.values() if other is giver)
        if most <= 0:
            return 0, 0
        start, many = self._looked_at.pop(giver, (0, len(giver.processing)))
        tasks = list(itertools.islice(giver.processing, start, start + look_at))
        asked = 0
        for ts in sorted(self._movable(tasks, giver, requirement), key=operator.attrgetter("priority")):
            if asked >= most or not takers:
                return len(tasks), asked
            taker = next((ws for ws in takers if self._may_go(ts, giver, ws)), None)
            if taker is not None and self._request_move(ts, giver, taker):
                asked += 1
                takers[taker] -= 1
                takers += Counter()  # drops those that have enough
        if start + len(tasks) < len(giver.processing):
            self._looked_at[giver] = start + len(tasks), many
            self._is_searching = True
        elif not asked:
            self._fruitless[giver, requirement] = self._loop.time() + FRUITLESS_SECONDS
            if len(giver.processing) < many:
                self._schedule_later()  # what left meanwhile let others move up, past where they would have been seen
        return len(tasks), asked

    def _schedule_later(self) -> None:
        """Begin another slice when those that had nothing to give count again, even when nothing else happens."""
        if self._later is not None:
            self._later.cancel()
        self._later = self._loop.call_later(FRUITLESS_SECONDS + PAUSE_SECONDS, self.schedule)

    def _movable(self, tasks: Iterable[TaskState], giver: WorkerState, requirement: Requirement) -> Iterable[TaskState]:
        """Yield the tasks of a requirement that may wait and are not requested already."""
        in_flight, begun = self._stealing.in_flight, self._begun
        executing, long_running = giver.executing, giver.long_running
        for ts in tasks:
            if ts.actor or ts in in_flight or ts in begun or ts in executing or ts in long_running:
                continue
            if ts.resource_restrictions and requirement_of(ts) == requirement:
                yield ts

    def _may_go(self, ts: TaskState, giver: WorkerState, taker: WorkerState) -> bool:
        """Return whether a task may run there, and would not end later for all that must be copied first."""
        if (ts.worker_restrictions or ts.host_restrictions) and taker not in self._scheduler.valid_workers(ts):
            return False
        return not ts.dependencies or self._ends_at(ts, taker, more=1) < self._ends_at(ts, giver, more=0)

    def _ends_at(self, ts: TaskState, ws: WorkerState, *, more: int) -> float:
        """Return in how many seconds the worker ends all that it has, copies included, and `more` such tasks."""
        scheduler = self._scheduler
        seconds = ws.occupancy + self._stealing.in_flight_occupancy.get(ws, 0.0)
        if more:
            seconds += scheduler.get_comm_cost(ts, ws) + scheduler._get_prefix_duration(ts.prefix)  # noqa: SLF001
        return float(seconds) / slots_of(ws, requirement_of(ts))

    def _request_move(self, ts: TaskState, giver: WorkerState, taker: WorkerState) -> bool:
        request = self._stealing.move_task_request(ts, giver, taker)
        if not self._is_on_its_way(ts, request):
            return False
        self._requested[request] = (ts, giver, taker)
        return True

    def _is_on_its_way(self, ts: TaskState, request: str) -> bool:
        info = self._stealing.in_flight.get(ts)
        return info is not None and info["stimulus_id"] == request

    def _may_take(self, ws: WorkerState, requirement: Requirement) -> bool:
        return ws in self._scheduler.running and slots_of(ws, requirement) > 0 and self._may_get_work(ws)

    def _drop_outdated(self) -> None:
        """Drop what is no longer so: workers that went took their answers with them."""
        now = self._loop.time()
        asked = self._requested.items()
        self._requested = {request: about for request, about in asked if self._is_on_its_way(about[0], request)}
        self._begun = {ts: ws for ts, ws in self._begun.items() if ts.processing_on is ws}
        self._fruitless = {name: until for name, until in self._fruitless.items() if until > now}
        self._looked_at = {ws: (n, many) for ws, (n, many) in self._looked_at.items() if n < len(ws.processing)}


@dataclass(frozen=True)
class Load:
    """A worker: how many tasks it can run at once, has been given (running ones included), and whether it takes."""

    slots: int
    tasks: int
    takes: bool = True


def spread(loads: Mapping[Any, Load], *, rounds: float, slack: float, most: int) -> Counter[tuple[Any, Any]]:
    """Return (giver, taker) -> tasks, `most` at the most, so that all workers end together.

    From the most loaded to the least, one task at a time, and only where the taker then still has less to do than the
    giver had: so no task goes to and fro, and a slot is never left empty while a task waits elsewhere.

    A taker gets up to `rounds` waiting tasks for each of its slots, and none before half of them are used up: what it
    does not get now it gets as it goes on, when more is known about who is slow. It gets none either while it is less
    than `slack` rounds behind the most loaded worker: moving them would take longer than it saves.
    """
    tasks = {worker: load.tasks for worker, load in loads.items()}
    order = {worker: i for i, worker in enumerate(loads)}  # for equal loads: workers cannot be compared

    def giving(worker: Any) -> tuple[float, int, Any]:
        return -tasks[worker] / loads[worker].slots, order[worker], worker

    def taking(worker: Any) -> tuple[float, int, Any]:
        return (tasks[worker] + 1) / loads[worker].slots, order[worker], worker

    givers = [giving(worker) for worker, load in loads.items() if load.tasks > load.slots]
    highest = max((-load for load, *_ in givers), default=0.0)
    wants = [w for w, load in loads.items() if load.takes and load.tasks < load.slots * (1 + rounds / 2)]
    takers = [entry for entry in map(taking, wants) if entry[0] + slack < highest]
    heapq.heapify(givers)
    heapq.heapify(takers)
    moves: Counter[tuple[Any, Any]] = Counter()
    while givers and takers and most > 0 and takers[0][0] < -givers[0][0]:
        giver, taker = givers[0][-1], takers[0][-1]
        moves[giver, taker] += 1
        most -= 1
        tasks[giver] -= 1
        tasks[taker] += 1
        _renew(givers, giving(giver), stays=tasks[giver] > loads[giver].slots)
        _renew(takers, taking(taker), stays=tasks[taker] < loads[taker].slots * (1 + rounds))
    return moves


def _renew(heap: list[tuple[float, int, Any]], entry: tuple[float, int, Any], *, stays: bool) -> None:
    """Put the first entry of a heap where it belongs now, or take it out."""
    if stays:
        heapq.heapreplace(heap, entry)
    else:
        heapq.heappop(heap)
