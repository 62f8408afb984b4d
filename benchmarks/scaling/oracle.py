"""What an oracle that knows the future would need: the least makespan, and the least GPU-seconds held.

Both are lower bounds, given the same nodes: nobody, whatever he knows, does better.

*Makespan* (`graph`): the longest chain, and all work on all slots that the pools can have.

*Held* is the least for the service that was given: of all schedules that finish each submission when this run did, or
earlier. Otherwise the least would be one pod that does everything in the end. So it is asked anew for each run: one
that takes its time is compared with an oracle that may take as much. Each pod holds its GPU while it starts and ends,
and one on each node while the image is pulled; idle time is held where that is cheaper than to start again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.scaling.graph import Bounds, bounds, first_worker_seconds, only_on_gpus
from benchmarks.scaling.least_held import Floats, Work, least_held, least_units
from benchmarks.scaling.trace import GPU_POOL, Trace

_STEPS = 2000  # at most, while a step stays short beside a pod's start
_SHORTEST_STEP_SECONDS = 1.0


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


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean; of nothing it is 1."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0
