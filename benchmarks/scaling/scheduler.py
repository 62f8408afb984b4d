"""A thin Dask scheduler: it gives ready tasks to free workers, learns durations, drains, and says its demand.

Simplified: a task moves to whichever able worker is free (perfect stealing), inputs move in no time, results keep
nobody, and drains find nothing to move. As in the real one, tasks go by priority, only to workers that offer what they
ask for; fenced pools get no plain tasks; a duration is unknown until the first task of its prefix has ended.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from benchmarks.scaling.clock import Clock
from benchmarks.scaling.trace import PLAIN, Resources, Trace
from gpudask.planning.observed.pods import Pod
from gpudask.scaling.demand import Demand, Requirement, Worker

_EVERY_SECONDS = 1.0
_ERROR = 0.25
_BUDGET = 2000  # tasks that one estimate walks
_UNKNOWN_SECONDS = 0.5  # of a later step that never ran
_REPORTS = "next_seconds" in Requirement.__slots__
_REMEMBERED = 50  # tasks that a mean follows, as in the preload's durations


@dataclass(frozen=True, slots=True)
class Soon:
    """The first of the waiting tasks can run in `seconds`, None where that is not known, and about `tasks` then."""

    seconds: float | None = None
    tasks: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """A scheduler's knowledge: mean seconds by prefix, tasks that ended, those that run and since when.

    `threads`: how many there are for plain tasks.
    """

    now: float
    means: Mapping[str, tuple[float, int]]
    finished: Mapping[int, float]
    running: Mapping[int, float]
    threads: int

    def left(self, task: int, prefix: str) -> float:
        """The seconds that a task is expected to take from now; over its time, as long again as it is over it."""
        mean = self.means[prefix][0] if prefix in self.means else _UNKNOWN_SECONDS
        return abs(mean - (self.now - self.running.get(task, self.now)))


def _as_fields(soon: Soon) -> dict[str, Any]:
    """As fields of a requirement."""
    return {"next_seconds": soon.seconds, "next_tasks": soon.tasks} if _REPORTS else {}


class LookAhead:
    """The preload's estimate of tasks that wait for their inputs: when the first can run, and how many then.

    The true remaining graph with the means known so far, at most once a second, and then wrong by up to a quarter.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._random = Random(trace.seed)  # noqa: S311 - a simulation, no secret
        self._kept: dict[int, tuple[float, Soon]] = {}

    def look(self, waiting: set[int], known: Known) -> Soon:
        """The estimate for `waiting` tasks of one kind: for the one with the highest priority."""
        if not waiting:
            return Soon()
        first = min(waiting)
        kept = self._kept.get(first)
        if kept is not None and known.now - kept[0] < _EVERY_SECONDS:
            return kept[1]
        soon = self._estimate(first, waiting, known)
        self._kept = {first: (known.now, soon)}
        return soon

    def _estimate(self, first: int, waiting: set[int], known: Known) -> Soon:
        tasks = self._trace.tasks
        ancestors: set[int] = set()
        stack = [first]
        while stack and len(ancestors) < _BUDGET:
            for needed in tasks[stack.pop()].needs:
                if needed not in known.finished and needed not in ancestors:
                    ancestors.add(needed)
                    stack.append(needed)
        if any(tasks[number].prefix not in known.means and not tasks[number].needs for number in ancestors):
            return Soon()
        left = {number: known.left(number, tasks[number].prefix) for number in ancestors}
        chain: dict[int, float] = {}
        for number in sorted(ancestors):
            before = max((chain.get(needed, 0.0) for needed in tasks[number].needs), default=0.0)
            chain[number] = before + left[number]
        seconds = max(max(chain.values(), default=0.0), sum(left.values()) / max(1, known.threads))
        same = [number for number in waiting if set(tasks[number].needs) == set(tasks[first].needs)]
        return Soon(seconds * self._random.uniform(1 - _ERROR, 1 + _ERROR), len(same))


@dataclass
class Process:
    """A worker process. `free`: what it offers and nobody uses; threads stand under the empty name."""

    name: str
    pod: Pod
    free: dict[str, float]
    running: dict[int, float] = field(default_factory=dict)  # task -> since when
    joined: float = 0.0
    idle_since: float = 0.0
    leaving: bool = False
    gone: bool = False


class Scheduler:
    """`changed` is called after each change, with whether it is an edge: one that the long poll tells at once."""

    def __init__(self, clock: Clock, trace: Trace, changed: Callable[[bool], None]) -> None:
        self.finished_at: dict[int, float] = {}
        self.job_finished_at: dict[int, float] = {}
        self.executions = 0
        self.used: list[tuple[int, float, float]] = []  # task, begin, end of what ran to its end
        self._clock, self._trace, self._changed = clock, trace, changed
        self._processes: dict[str, Process] = {}
        self._ready: dict[Resources, list[int]] = {}
        self._missing: dict[int, int] = {}  # task -> inputs that are not there
        self._needed_by: dict[int, list[int]] = {}
        self._waiting: dict[Resources, set[int]] = {}
        self._active: Counter[tuple[Resources, str]] = Counter()
        self._means: dict[str, tuple[float, int]] = {}
        self._jobs_left = Counter(task.job for task in trace.tasks)
        self._look_ahead = LookAhead(trace)
        self._version = 0
        self._prepare()

    def _prepare(self) -> None:
        by_job: dict[int, list[int]] = {}
        for number, task in enumerate(self._trace.tasks):
            by_job.setdefault(task.job, []).append(number)
            for needed in task.needs:
                self._needed_by.setdefault(needed, []).append(number)
        for job, at in enumerate(self._trace.submitted):
            self._clock.after(at, partial(self._submit, by_job.get(job, [])))

    # what happens to it

    def joins(self, pod: Pod) -> None:
        """The workers of a pod that has started register."""
        pool = self._trace.by_name[pod.pool]
        ends = [f"-{i}" for i in range(pool.workers_per_pod)] if pool.workers_per_pod > 1 else [""]
        for end in ends:
            free = {"": float(pool.threads_per_worker), **pool.offered_resources}
            process = Process(pod.dask_name + end, pod, free, joined=self._clock.now, idle_since=self._clock.now)
            self._processes[process.name] = process
            self._feed(process)
        self._tell(edge=True)

    def leaves(self, pod: Pod) -> None:
        """The workers of a pod are killed; what they ran begins anew elsewhere."""
        for process in self.of_pod(pod):
            process.gone = True
            del self._processes[process.name]
            for number in process.running:
                self._push(number)
        self._feed_all()
        self._tell(edge=True)

    def retire(self, pods: dict[str, bool]) -> frozenset[str]:
        """Close the workers of these pods (Dask name -> only if idle) and open all others; who is refused."""
        refused = set()
        for process in self._processes.values():
            only_if_idle = pods.get(process.pod.dask_name)
            if only_if_idle and not process.leaving and any(p.running for p in self.of_pod(process.pod)):
                refused.add(process.pod.dask_name)
        opened = False
        for process in self._processes.values():
            leaving = process.pod.dask_name in pods and process.pod.dask_name not in refused
            opened |= process.leaving and not leaving
            process.leaving = leaving
        if opened:
            self._feed_all()
        self._tell(edge=True)
        return frozenset(refused)

    def of_pod(self, pod: Pod) -> list[Process]:
        """The registered workers of a pod."""
        return [process for process in self._processes.values() if process.pod.uid == pod.uid]

    # what it says

    @property
    def done(self) -> bool:
        """Whether every task has ended."""
        return len(self.finished_at) == len(self._trace.tasks)

    def processes(self, pool: str) -> list[Process]:
        """The registered workers of a pool."""
        return [process for process in self._processes.values() if process.pod.pool == pool]

    @property
    def by_name(self) -> dict[str, Process]:
        """All registered workers."""
        return self._processes

    def listen(self) -> Demand:
        """The preload's answer now."""
        self._version += 1
        kinds = sorted({resources for resources, _ in self._active} | {r for r, w in self._waiting.items() if w})
        return Demand(
            f"s/{self._version}",
            "s",
            tasks=sum(self._jobs_left.values()),
            requirements=tuple(self._requirement(resources) for resources in kinds),
            workers=tuple(self._worker(process) for process in self._processes.values()),
        )

    def work(self, resources: Resources, *, unknown_seconds: float) -> tuple[float, int]:
        """Expected seconds of all tasks of that kind that run or could run, and their number."""
        counts = {prefix: n for (kind, prefix), n in self._active.items() if kind == resources}
        means = {prefix: self._means.get(prefix, (unknown_seconds, 0))[0] for prefix in counts}
        return sum(n * means[prefix] for prefix, n in counts.items()), sum(counts.values())

    def _requirement(self, resources: Resources) -> Requirement:
        counts = {prefix: n for (kind, prefix), n in self._active.items() if kind == resources}
        active, ready = sum(counts.values()), len(self._ready.get(resources, ()))
        # Annotated tasks lie with a worker as soon as there is one; plain ones wait with the scheduler.
        assigned = active if resources != PLAIN and self._able(resources) else active - ready
        waiting = self._waiting.get(resources, set())
        soon = self._look_ahead.look(waiting, self._known()) if waiting else Soon()
        return Requirement(
            resources,
            waiting=len(waiting),
            unrunnable=active - assigned,
            processing=assigned,
            seconds=self._seconds(resources, counts),
            unknown=sum(n for prefix, n in counts.items() if prefix not in self._means),
            **_as_fields(soon),
        )

    def _known(self) -> Known:
        running = {n: begun for process in self._processes.values() for n, begun in process.running.items()}
        threads = sum(self._trace.by_name[p.pod.pool].threads_per_worker for p in self._able(PLAIN))
        return Known(self._clock.now, self._means, self.finished_at, running, threads)

    def _seconds(self, resources: Resources, counts: dict[str, int]) -> float:
        """Means of what is left; a task that runs past its mean counts as long as it has run."""
        seconds = sum(n * self._means[prefix][0] for prefix, n in counts.items() if prefix in self._means)
        for process in self._processes.values():
            for number, begun in process.running.items():
                task = self._trace.tasks[number]
                if task.resources == resources and task.prefix in self._means:
                    seconds += max(0.0, self._clock.now - begun - self._means[task.prefix][0])
        return seconds

    def _worker(self, process: Process) -> Worker:
        running = len(process.running)
        return Worker(
            process.name,
            pool=process.pod.pool,
            processing=running,
            own=running,
            idle_seconds=0.0 if running else self._clock.now - process.idle_since,
            blockers=("running",) if running else (),
            retiring="" if not process.leaving else "draining" if running else "drained",
        )

    # tasks

    def _submit(self, numbers: list[int]) -> None:
        for number in numbers:
            task = self._trace.tasks[number]
            missing = sum(1 for needed in task.needs if needed not in self.finished_at)
            if missing:
                self._missing[number] = missing
                self._waiting.setdefault(task.resources, set()).add(number)
            else:
                self._becomes_ready(number)
        self._feed_all()
        self._tell(edge=True)

    def _becomes_ready(self, number: int) -> None:
        task = self._trace.tasks[number]
        self._active[task.resources, task.prefix] += 1
        self._push(number)

    def _push(self, number: int) -> None:
        heapq.heappush(self._ready.setdefault(self._trace.tasks[number].resources, []), number)

    def _able(self, resources: Resources) -> list[Process]:
        pools = self._trace.serving.get(resources, ())
        return [p for p in self._processes.values() if p.pod.pool in pools and not p.leaving]

    def _feed_all(self) -> None:
        """Give out what is ready; the workers with the most to spare first, pools in the order of their cost."""
        for process in sorted(self._processes.values(), key=lambda p: (self._cost(p), -p.free[""])):
            self._feed(process)

    def _cost(self, process: Process) -> int:
        return self._trace.by_name[process.pod.pool].gpus_per_pod

    def _feed(self, process: Process) -> None:
        while not process.leaving and (number := self._next_for(process)) is not None:
            task = self._trace.tasks[number]
            heapq.heappop(self._ready[task.resources])
            process.free[""] -= 1
            for name, amount in task.resources:
                process.free[name] -= amount
            process.running[number] = self._clock.now
            self.executions += 1
            self._clock.after(task.seconds, partial(self._ends, process, number))

    def _next_for(self, process: Process) -> int | None:
        if process.free[""] < 1:
            return None
        heads = [
            queue[0]
            for resources, queue in self._ready.items()
            if queue
            and process.pod.pool in self._trace.serving[resources]
            and all(process.free.get(name, 0.0) >= amount for name, amount in resources)
        ]
        return min(heads, default=None)

    def _ends(self, process: Process, number: int) -> None:
        if process.gone:
            return
        task = self._trace.tasks[number]
        begun = process.running.pop(number)
        process.free[""] += 1
        for name, amount in task.resources:
            process.free[name] += amount
        self.used.append((number, begun, self._clock.now))
        self.finished_at[number] = self._clock.now
        self._learn(task.prefix, self._clock.now - begun)
        edge = self._count_off(number)
        for follower in self._needed_by.get(number, ()):
            edge |= self._has_input(follower)
        if edge:
            self._feed_all()
        self._feed(process)
        if not process.running:
            process.idle_since = self._clock.now
            edge = True
        self._tell(edge=edge)

    def _count_off(self, number: int) -> bool:
        """Take an ended task off the counts; whether it was the last of its kind."""
        task = self._trace.tasks[number]
        self._active[task.resources, task.prefix] -= 1
        self._active += Counter()  # drops what is 0
        self._jobs_left[task.job] -= 1
        if not self._jobs_left[task.job]:
            self.job_finished_at[task.job] = self._clock.now
        return not any(kind == task.resources for kind, _ in self._active)

    def _has_input(self, number: int) -> bool:
        """One of its inputs is there; whether it was the last."""
        if number not in self._missing:
            return False  # not submitted yet
        self._missing[number] -= 1
        if self._missing[number]:
            return False
        del self._missing[number]
        self._waiting[self._trace.tasks[number].resources].discard(number)
        self._becomes_ready(number)
        return True

    def _learn(self, prefix: str, seconds: float) -> None:
        mean, n = self._means.get(prefix, (0.0, 0))
        n = min(n + 1, _REMEMBERED)
        self._means[prefix] = (mean + (seconds - mean) / n, n)

    def _tell(self, *, edge: bool) -> None:
        self._changed(edge)
