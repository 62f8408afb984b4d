"""The oracle, which knows the future: the least makespan, and the least GPU-seconds held.

Both are lower bounds, given the same nodes: nobody, whatever he knows, does better.

*Makespan*: the longest chain, and all work on all slots that the pools can have. A task cannot begin before its
submission, its longest chain of inputs, and its pool's first worker; nor before the whole of a large set of inputs had
time on every slot that its pool can have. The same, backwards, for what follows.

*Held* is the least for the service that was given: of all schedules that finish each submission when this run did, or
earlier. Otherwise the least would be one pod that does everything in the end. So it is asked anew for each run: one
that takes its time is compared with an oracle that may take as much. Each pod holds its GPU while it starts and ends,
and one on each node while the image is pulled; idle time is held where that is cheaper than to start again.

The least that must be held so that enough work is done in time is dynamic programming over time.
Units of capacity (pods, or nodes) are switched on and off. While `count` of them are on, `rates[count]` seconds of
work are done a second. By each time at least `due` and at most `possible` seconds of work are done. Every second of a
unit costs `cost`, every switching-on `cost * overhead_seconds`.

It is a relaxation: work is a fluid, shared by all units. So no schedule of whole tasks that keeps to `due` and
`possible` holds less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from benchmarks.scaling.trace import GPU_POOL, Machines, Trace

Floats = NDArray[np.floating]
Ints = NDArray[np.integer]
_SLACK = 1e-6
_MANY = 4  # inputs or followers from which the work of all of them together is looked at
_STEPS = 2000  # at most, while a step stays short beside a pod's start
_SHORTEST_STEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """For each task: `head` the earliest begin, `tail` what follows its end at least; for each job its earliest end."""

    heads: Sequence[float]
    tails: Sequence[float]
    job_ends: Sequence[float]
    makespan: float


def first_worker_seconds(trace: Trace, pool: str) -> float:
    """The earliest time at which a worker of `pool` can be there."""
    machines = trace.machines
    if not trace.by_name[pool].gpus_per_pod:
        return machines.start_seconds
    return least_node_seconds(machines) + machines.pull_seconds + machines.start_seconds


def least_node_seconds(machines: Machines) -> float:
    """The soonest that a node comes."""
    return 0.9 * machines.node_seconds


def bounds(trace: Trace) -> Bounds:
    """Heads, tails and the least makespan of `trace`."""
    followers: list[list[int]] = [[] for _ in trace.tasks]
    for number, task in enumerate(trace.tasks):
        for needed in task.needs:
            followers[needed].append(number)
    heads = _heads(trace)
    tails = _tails(trace, followers)
    by_job: list[list[int]] = [[] for _ in trace.submitted]
    for number, task in enumerate(trace.tasks):
        by_job[task.job].append(number)
    job_ends = [_makespan(trace, numbers, heads, tails) for numbers in by_job]
    return Bounds(heads, tails, job_ends, _makespan(trace, range(len(trace.tasks)), heads, tails))


def _heads(trace: Trace) -> list[float]:
    ready = {pool: first_worker_seconds(trace, pool) for pool in trace.by_name}
    heads: list[float] = []
    for task in trace.tasks:
        head = max(trace.submitted[task.job], min(ready[pool] for pool in trace.serving[task.resources]))
        head = max([head, *(heads[needed] + trace.tasks[needed].seconds for needed in task.needs)])
        if len(task.needs) >= _MANY:
            before = _reach(task.needs, lambda number: trace.tasks[number].needs)
            head = max(head, _least_end(trace, before, heads, [0.0] * len(heads)))
        heads.append(head)
    return heads


def _tails(trace: Trace, followers: list[list[int]]) -> list[float]:
    tails = [0.0] * len(trace.tasks)
    for number in reversed(range(len(trace.tasks))):
        after = followers[number]
        tails[number] = max((trace.tasks[f].seconds + tails[f] for f in after), default=0.0)
        if len(after) >= _MANY:
            later = _reach(after, followers.__getitem__)
            tails[number] = max(tails[number], _least_end(trace, later, [0.0] * len(tails), tails))
    return tails


def _makespan(trace: Trace, numbers: Sequence[int], heads: Sequence[float], tails: Sequence[float]) -> float:
    chains = (heads[n] + trace.tasks[n].seconds + tails[n] for n in numbers)
    return max(max(chains, default=0.0), _least_end(trace, numbers, heads, tails))


def _reach(start: Iterable[int], onward: object) -> list[int]:
    found: set[int] = set()
    stack = list(start)
    while stack:
        number = stack.pop()
        if number not in found:
            found.add(number)
            stack.extend(onward(number))  # type: ignore[operator]
    return sorted(found)


def _least_end(trace: Trace, numbers: Iterable[int], heads: Sequence[float], tails: Sequence[float]) -> float:
    """The earliest end of all of `numbers` and their tails, where each pool works with all its slots."""
    by_pool: dict[str, list[int]] = {}
    for number in numbers:
        serving = trace.serving[trace.tasks[number].resources]
        if len(serving) == 1:  # what may run in several pools is left out: the bound stays one
            by_pool.setdefault(serving[0], []).append(number)
    return max((_pool_end(trace, pool, group, heads, tails) for pool, group in by_pool.items()), default=0.0)


def _pool_end(trace: Trace, pool: str, group: list[int], heads: Sequence[float], tails: Sequence[float]) -> float:
    """From each head on: the work that cannot begin earlier, on all pods at once, and the least tail of it."""
    pods = trace.most_pods(pool)
    work, tail, end = 0.0, float("inf"), 0.0
    for number in sorted(group, key=lambda n: -heads[n]):
        work += pod_seconds(trace, pool, number)
        tail = min(tail, tails[number])
        end = max(end, heads[number] + work / pods + tail)
    return max(end, _packed_end(trace, pool, group, heads, tails))


def _packed_end(trace: Trace, pool: str, group: list[int], heads: Sequence[float], tails: Sequence[float]) -> float:
    """Of k times the slots and one more tasks, k + 1 share a slot: no sooner than the k + 1 shortest of the longest.

    The bound L3 of Dell'Amico and Martello, "Optimal Scheduling of Tasks on Identical Parallel Processors", 1995.
    """
    slots = trace.most_pods(pool) * max(trace.slots(pool, trace.tasks[n].resources) for n in group)
    seconds = sorted((trace.tasks[n].seconds for n in group), reverse=True)
    shared = (sum(seconds[k * slots - k : k * slots + 1]) for k in range(1, (len(seconds) - 1) // slots + 1))
    return min(heads[n] for n in group) + max(shared, default=0.0) + min(tails[n] for n in group)


def pod_seconds(trace: Trace, pool: str, number: int) -> float:
    """What a task takes of a pod: its seconds by the pod's slots for its kind."""
    task = trace.tasks[number]
    return task.seconds / trace.slots(pool, task.resources)


def only_on_gpus(trace: Trace) -> list[int]:
    """The tasks that nothing but the GPU pool can run."""
    return [n for n, task in enumerate(trace.tasks) if trace.serving[task.resources] == (GPU_POOL,)]


@dataclass(frozen=True)
class Least:
    """The least GPU-seconds held: by pods, and by the nodes that they are on."""

    by_pods: float
    by_nodes: float


class Oracle:
    """The bounds for one trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    @property
    def makespan(self) -> float:
        """No run ends sooner than this, in seconds."""
        return self._bounds.makespan

    def job_end(self, job: int) -> float:
        """No run finishes this submission sooner."""
        return self._bounds.job_ends[job]

    @cached_property
    def _bounds(self) -> Bounds:
        return bounds(self._trace)

    def least(self, jobs: Mapping[int, float]) -> Least:
        """The least held by whoever finishes each job at the given time or earlier.

        Raises:
            ImpossibleError: nobody does.
        """
        trace, machines = self._trace, self._trace.machines
        numbers = only_on_gpus(trace)
        if not numbers:
            return Least(0.0, 0.0)
        work = self._work(numbers, jobs)
        pool = trace.by_name[GPU_POOL]
        overhead = machines.start_seconds + machines.end_seconds
        pods = trace.most_pods(GPU_POOL)
        per_node = machines.gpus_per_node // pool.gpus_per_pod
        by_pods = [float(count) for count in range(pods + 1)]
        by_nodes = [float(min(count * per_node, pods)) for count in range(math.ceil(pods / per_node) + 1)]
        # Nodes are new at first, and each pulls the image while at least one pod is on it.
        nodes = math.ceil(least_units(work, by_pods) / per_node)
        held_by_pods = least_held(work, by_pods, overhead_seconds=overhead, cost=pool.gpus_per_pod)
        held_by_nodes = least_held(work, by_nodes, overhead_seconds=overhead, cost=machines.gpus_per_node)
        return Least(
            held_by_pods + nodes * machines.pull_seconds * pool.gpus_per_pod,
            held_by_nodes + nodes * machines.pull_seconds * machines.gpus_per_node,
        )

    def _work(self, numbers: list[int], jobs: Mapping[int, float]) -> Work:
        trace, heads, tails = self._trace, self._bounds.heads, self._bounds.tails
        begins = np.array([heads[n] for n in numbers])
        seconds = np.array([trace.tasks[n].seconds for n in numbers])
        ends = np.array([jobs[trace.tasks[n].job] - tails[n] for n in numbers])
        slots = np.array([trace.slots(GPU_POOL, trace.tasks[n].resources) for n in numbers])
        horizon = float(ends.max())
        step = min(max(_SHORTEST_STEP_SECONDS, horizon / _STEPS), 2.0)
        step = min(step, (trace.machines.start_seconds + trace.machines.end_seconds) / 2)
        grid = step * np.arange(1, math.ceil(horizon / step) + 1)
        return Work(
            step_seconds=step,
            due=_ramps(grid, ends - seconds, ends, 1 / slots),
            possible=_ramps(grid, begins, begins + seconds, 1 / slots),
            closed=int(first_worker_seconds(trace, GPU_POOL) // step),
        )


def _ramps(grid: Floats, begins: Floats, ends: Floats, slopes: Floats) -> Floats:
    """The sum of ramps that rise from each begin to its end with its slope, at each time of the grid."""
    times = np.concatenate([begins, ends])
    changes = np.concatenate([slopes, -slopes])
    order = np.argsort(times, kind="stable")
    times, slope = times[order], np.cumsum(changes[order])
    heights = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(times))])
    return np.asarray(np.interp(grid, times, heights, left=0.0))


class ImpossibleError(ValueError):
    """Work that cannot be done in time, however much is held."""


@dataclass(frozen=True)
class Work:
    """Seconds of work at the ends of equal steps: `due` at least, `possible` at most; `closed`: steps without units."""

    step_seconds: float
    due: Floats
    possible: Floats
    closed: int = 0


def least_held(work: Work, rates: Sequence[float], *, overhead_seconds: float, cost: float = 1.0) -> float:
    """The least cost.

    Steps are rounded in favour of the bound: a unit that is on in a part of a step works for all of it, and what that
    adds to its cost, a step at its beginning and one at its end at most, is taken off again.

    Raises:
        ImpossibleError: no number of units does it.
    """
    step = work.step_seconds
    most = np.ceil(work.possible / step - _SLACK).astype(int)
    least = np.minimum(np.maximum(np.ceil(work.due / step - _SLACK).astype(int), 0), most)
    gains = [int(np.ceil(rate - _SLACK)) for rate in rates]
    on = cost * (overhead_seconds - 2 * step) * np.arange(len(rates))[:, None]
    cheapest = np.full((len(rates), 1), np.inf)
    cheapest[0, 0] = 0.0
    lowest = number = 0
    while number < len(most):
        switched = _switch(cheapest, on)
        if number < work.closed:
            switched[1:] = np.inf
        steps = _steps_without_work(least, most, number, lowest) if number >= work.closed else 1
        bounds = (int(least[number]), int(most[number]))
        cheapest = _advance(switched, gains, lowest, bounds, steps * cost * step)
        lowest = bounds[0]
        number += steps
    found = float(cheapest.min())
    if not np.isfinite(found):
        raise ImpossibleError("the work is due before it can be done")
    return max(0.0, found)


def least_units(work: Work, rates: Sequence[float]) -> int:
    """The fewest units that do it when they are on all the time.

    Raises:
        ImpossibleError: not even all of them do.
    """
    for count in range(len(rates)):
        done = 0.0
        for number, (due, possible) in enumerate(zip(work.due, work.possible, strict=True)):
            done = min(done + (rates[count] * work.step_seconds if number >= work.closed else 0.0), possible)
            if done < due - _SLACK:
                break
        else:
            return count
    raise ImpossibleError("the work is due before it can be done")


def _switch(cheapest: Floats, on: Floats) -> Floats:
    """The least cost of being at each count, after switching: off is free, on costs."""
    up = np.minimum.accumulate(cheapest - on, axis=0) + on
    down = np.minimum.accumulate(cheapest[::-1], axis=0)[::-1]
    return np.asarray(np.minimum(up, down))


def _steps_without_work(least: Ints, most: Ints, number: int, lowest: int) -> int:
    """How many steps from `number` on are alike because all is done and nothing new is possible; at least one."""
    end = number
    while end < len(most) and least[end] == most[end] == lowest:
        end += 1
    return max(1, end - number)


def _advance(switched: Floats, gains: list[int], lowest: int, bounds: tuple[int, int], cost: float) -> Floats:
    """A step of work at each count: as much as is possible, because less is never better; what is late falls out.

    `lowest` is the work of column 0 before, `bounds` the least and most afterwards.
    """
    least, most = bounds
    after = np.full((len(gains), most - least + 1), np.inf)
    width = switched.shape[1]
    for count, gain in enumerate(gains):
        shift = lowest + gain - least  # of column 0
        row = switched[count] + count * cost
        capped = max(0, min(width, most - least - shift + 1))  # columns that stay at or below `most`
        begin = max(0, -shift)
        if begin < capped:
            after[count, begin + shift : capped + shift] = row[begin:capped]
        if capped < width:
            after[count, -1] = min(after[count, -1], float(row[max(capped, 0) :].min()))
    return after


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean; of nothing it is 1."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0
