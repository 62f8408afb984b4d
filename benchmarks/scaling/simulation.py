"""Kubernetes, Dask and a policy on one clock, and what came of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.scaling.clock import Clock
from benchmarks.scaling.kubernetes import Holding, Kubernetes
from benchmarks.scaling.scheduler import Scheduler
from benchmarks.scaling.trace import GPU_POOL, Trace
from gpudask.desired import names, spec_hash
from gpudask.planning.observed.pods import Pod

# A run that takes longer than this after the last submission will not end by itself.
_GIVE_UP_SECONDS = 50_000.0


class StuckError(Exception):
    """A run that does not end: tasks that never run, or pods that never leave."""


class Simulation:
    """One run. `actions`: pods of GPU pools asked for, cancelled, retired and called back."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.clock = Clock()
        self.actions = 0
        self.gpu_pods: list[tuple[float, int]] = []  # when, GPUs held then
        self.wake: Callable[[bool], None] = lambda _edge: None  # told whether it is an edge
        self.kubernetes = Kubernetes(
            self.clock,
            trace.machines,
            trace.seed,
            started=self._started,
            ended=self._ended,
            changed=self._pods_changed,
        )
        self.scheduler = Scheduler(self.clock, trace, self._demand_changed)
        self._pods = 0
        self._start_scheduler()

    @property
    def over(self) -> bool:
        """Whether every task has ended and no GPU is held or asked for."""
        return self.scheduler.done and not any(self.is_gpu(pod) for pod in self.kubernetes.pods.values())

    def is_gpu(self, pod: Pod) -> bool:
        """Whether it is a pod of a GPU pool."""
        return bool(pod.pool) and self.trace.by_name[pod.pool].gpus_per_pod > 0

    def create(self, pool: str, number: int | None = None) -> None:
        """Create a worker pod, number `number` or the lowest that is free."""
        cluster, section = self.trace.cluster, self.trace.by_name[pool]
        if number is None:
            free = (n for n in range(10_000) if names.worker_pod("sim", pool, n) not in self.kubernetes.pods)
            number = next(free)
        name = names.worker_pod(cluster.name, pool, number)
        self._pods += 1
        self._count(pool)
        self.kubernetes.create(
            name,
            pool,
            gpus=section.gpus_per_pod,
            dask_name=names.dask_name(name, f"{self._pods:05x}"),
            spec_hash=spec_hash.of_worker(cluster.spec, section),
        )

    def delete(self, pod: Pod, *, only_if_unchanged: bool = False) -> None:
        """Delete a pod. It counts as an action where it was not announced by a retirement."""
        if pod.pool and pod.retirement is None:
            self._count(pod.pool)
        self.kubernetes.delete(pod, only_if_unchanged=only_if_unchanged)

    def count_action(self, pod: Pod) -> None:
        """Count a retirement or a recall."""
        self._count(pod.pool)

    def _count(self, pool: str) -> None:
        self.actions += self.trace.by_name[pool].gpus_per_pod > 0

    def _started(self, pod: Pod) -> None:
        current = self.kubernetes.pods.get(pod.name)
        if pod.pool and current is not None and current.uid == pod.uid and not current.deleting:
            self.scheduler.joins(current)

    def _ended(self, pod: Pod) -> None:
        self.scheduler.leaves(pod)

    def _demand_changed(self, edge: bool) -> None:
        self.wake(edge)

    def _pods_changed(self) -> None:
        held = self.kubernetes.held_gpus
        if not self.gpu_pods or self.gpu_pods[-1][1] != held:
            self.gpu_pods.append((self.clock.now, held))
        self._demand_changed(edge=True)

    def _start_scheduler(self) -> None:
        cluster = self.trace.cluster
        now = self.kubernetes.now
        name = names.scheduler_pod(cluster.name, cluster.uid, frozenset())
        digest = spec_hash.of_scheduler(cluster.spec)
        self.kubernetes.put(
            Pod("uid-scheduler", name, "default", cluster.uid, "1", phase="Running", ready=True, created=now - 60.0,
                started=now - 55.0, ip="10.0.0.1", spec_hash=digest)
        )  # fmt: skip


class Policy(ABC):
    """A policy that sizes the pools of a simulation. Pools begin with their minimum, and no GPU node is there."""

    title: str

    @abstractmethod
    def begin(self, simulation: Simulation) -> None:
        """Take over; the simulation says what changes by `simulation.wake`."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run. Times in seconds from the start; `jobs`: when each submission was finished."""

    policy: str
    makespan: float
    jobs: dict[int, float]
    held_by_pods: tuple[Holding, ...]
    held_by_nodes: tuple[Holding, ...]
    gpu_seconds_used: float
    actions: int
    executions: int
    gpu_pods: tuple[tuple[float, int], ...]

    @property
    def gpu_seconds(self) -> float:
        """GPU-seconds that pods held: from the node that is found until the GPU is free again."""
        return sum(holding.gpu_seconds for holding in self.held_by_pods)

    @property
    def node_gpu_seconds(self) -> float:
        """GPU-seconds of the nodes that pods were on."""
        return sum(holding.gpu_seconds for holding in self.held_by_nodes)


def run(trace: Trace, policy: Policy) -> Outcome:
    """Run a trace to its end.

    Raises:
        StuckError: it does not come to one.
    """
    simulation = Simulation(trace)
    policy.begin(simulation)
    limit = max(trace.submitted, default=0.0) + _GIVE_UP_SECONDS
    while not simulation.over:
        if not simulation.clock.step() or simulation.clock.now > limit:
            left = len(trace.tasks) - len(simulation.scheduler.finished_at)
            pods = sorted(simulation.kubernetes.pods)
            raise StuckError(f"{trace}, {policy.title}: {left} tasks left, pods {pods} at {simulation.clock.now:.0f} s")
    return _outcome(simulation, policy.title)


def _outcome(simulation: Simulation, title: str) -> Outcome:
    scheduler, trace = simulation.scheduler, simulation.trace
    used = (
        (end - begin) * trace.by_name[GPU_POOL].gpus_per_pod / trace.slots(GPU_POOL, trace.tasks[number].resources)
        for number, begin, end in scheduler.used
        if GPU_POOL in trace.serving[trace.tasks[number].resources][:1]
    )
    return Outcome(
        policy=title,
        makespan=max(scheduler.finished_at.values(), default=0.0),
        jobs=dict(scheduler.job_finished_at),
        held_by_pods=tuple(simulation.kubernetes.held_by_pods),
        held_by_nodes=tuple(simulation.kubernetes.held_by_nodes),
        gpu_seconds_used=sum(used),
        actions=simulation.actions,
        executions=scheduler.executions,
        gpu_pods=tuple(simulation.gpu_pods),
    )
