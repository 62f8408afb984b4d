"""A cluster in miniature: it carries out plans, lets time pass and runs tasks, so that whole sequences can be told.

A pod takes START_SECONDS until its container runs and one second more until its workers register; a running pod
takes one second to end. Where the scheduler restarts, the workers' containers are back BACK_OFF_SECONDS later. Tasks
are spread evenly over the open workers that can run them. Nothing is random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from gpudask.api.resource import Cluster
from gpudask.api.pool import Pool
from gpudask.clients.errors import ApiError
from gpudask.desired import names, spec_hash
from gpudask.desired.disruption import EVICTION_ANNOTATIONS
from gpudask.desired.scheduler import MadeWith
from gpudask.planning.actions import (
    Action,
    CreateScheduler,
    CreateWorker,
    DeletePod,
    MarkProtected,
    MarkRetiring,
    Plan,
    RemoveFromService,
)
from gpudask.planning.eviction import at_work
from gpudask.planning.observed.observation import Observation
from gpudask.planning.observed.pods import Ended, Pod, current_scheduler
from gpudask.planning.plan import plan
from gpudask.planning.scheduler import in_force
from gpudask.planning.pool_view import StartTimes
from gpudask.reconcile.loop_memory import Memory
from gpudask.scaling.demand import Demand, Requirement, Worker
from tests.planning.builders import NOW, cluster, seen

START_SECONDS = 2
GRACE_SECONDS = 1.0
BACK_OFF_SECONDS = 10.0


@dataclass
class Task:
    """A task that wants resources for some seconds. `worker` is where it is; until `ready` it waits for inputs."""

    resources: tuple[tuple[str, float], ...]
    seconds: float
    known: bool
    ready: float = 0.0
    worker: str = ""


@dataclass
class World:
    """Everything around the planner. `nodes`: how many pods of a pool find a node. `quota`: pools that it refuses.

    `places`: how many pods it leaves room for; None: any number.
    """

    cluster: Cluster
    now: float = NOW
    nodes: dict[str, int] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)
    held: dict[str, tuple[str, ...]] = field(default_factory=dict)
    idle_since: dict[str, float] = field(default_factory=dict)
    quota: set[str] = field(default_factory=set)
    places: int | None = None
    silent: bool = False
    estimate: Callable[[float], float | None] = lambda seconds: seconds
    cut: list[str] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    refused: frozenset[str] = frozenset()
    memory: Memory = field(default_factory=Memory)
    heard: tuple[Demand | None, float] = (None, 0.0)
    plan: Plan = field(default_factory=Plan)
    scheduler_process: int = 0
    scheduler_since: float = 0.0
    operator_since: float = 0.0
    features: dict[str, str] = field(default_factory=dict)
    sick: dict[str, str] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    _uids: int = 0

    # what people and programs do

    def apply(self, *pools: dict[str, Any], **spec: Any) -> None:
        """Edit the spec."""
        self.cluster = cluster(*pools, generation=self.cluster.generation + 1, **spec)
        self.memory.forget_refusals()

    def submit(
        self, count: int = 1, seconds: float = 10.0, *, known: bool = False, ready_in: float = 0.0, **resources: float
    ) -> None:
        """Submit tasks whose inputs are there in so many seconds."""
        wanted = tuple(sorted((name, float(amount)) for name, amount in resources.items()))
        self.tasks += [Task(wanted, seconds, known, self.now + ready_in) for _ in range(count)]

    def cancel(self) -> None:
        """Cancel every task."""
        self.tasks.clear()

    def change(self, name: str, **fields: Any) -> None:
        """Something happens to a pod, given as `gpu-0`."""
        full = f"{self.cluster.name}-{name.replace('-', '-worker-')}"
        self._set(self.pods[full], **fields)

    def change_scheduler(self, **fields: Any) -> None:
        """Something happens to the scheduler pod."""
        self._set(next(pod for pod in self.pods.values() if not pod.pool), **fields)

    def hold(self, name: str, *blockers: str) -> None:
        """A pod holds what it cannot leave behind; nothing: it no longer does."""
        self.held[f"{self.cluster.name}-{name.replace('-', '-worker-')}"] = blockers

    def sicken(self, name: str, words: str = "3 tasks in a row failed: cudaErrorECCUncorrectable") -> None:
        """The device of a pod's worker is lost, and the task there fails."""
        lost = self.pods[f"{self.cluster.name}-{name.replace('-', '-worker-')}"]
        self.sick[lost.dask_name] = words
        self.tasks = [task for task in self.tasks if task.worker != lost.dask_name]

    def exit(self, name: str, code: int = 0) -> None:
        """The container of a worker pod ends; it comes back with `come_back`."""
        ended = Ended("Completed" if code == 0 else "Error", code, at=self.now)
        self.change(name, started=0.0, ready=False, ended=ended)

    def come_back(self, name: str) -> None:
        """The kubelet has restarted the container."""
        self.change(name, started=self.now, ready=True)

    def vanish(self, name: str) -> None:
        """A pod is gone without a word."""
        self._remove(f"{self.cluster.name}-{name.replace('-', '-worker-')}")

    def restart_operator(self) -> None:
        """Another operator process: what the last one remembered is gone, the scheduler is asked anew."""
        self.memory = Memory()
        self.operator_since = self.now

    def lose_scheduler(self) -> None:
        """The scheduler's pod is gone, and the workers' containers start anew, and wait for the next one."""
        self.restart_scheduler()
        self._remove(next(pod.name for pod in self.pods.values() if not pod.pool))

    def restart_scheduler(self) -> None:
        """The scheduler's process ends and is there again: tasks are lost, every worker's container starts anew."""
        self.scheduler_process += 1
        self.scheduler_since = self.now
        self.cancel()
        self.held.clear()
        for pod in [pod for pod in self.pods.values() if pod.pool and pod.running]:
            self._set(pod, started=0.0, restarts=pod.restarts + 1, waiting="CrashLoopBackOff: back-off")

    # time

    def run(self, seconds: int) -> None:
        """Make a pass a second."""
        for _ in range(seconds):
            self.step()

    def step(self) -> None:
        """One pass, and one second."""
        self.reconcile()
        self.elapse(1.0)

    def reconcile(self) -> None:
        """Passes until one finds nothing to do."""
        for _ in range(20):
            observed = self.observe()
            self.memory.record_busy((pod.uid for pod in observed.pods), at_work(observed), self.now)
            self.plan = plan(observed)
            self.memory.record_frozen((name for name, pool in self.plan.pools.items() if pool.frozen), self.now)
            for name, pool in self.plan.pools.items():
                self.memory.record_starts(name, StartTimes.of(observed, name).starts, empty=not observed.workers(name))
                if not pool.size.is_guess:
                    self.memory.record_size(name, pool.size.pods)
            self.refused = frozenset()
            for action in (*self.plan.actions, *self.plan.protections):
                self._carry_out(action)
            self._tell()
            if not self.plan.actions and not self.refused:
                return
        raise AssertionError(f"20 passes and still something to do: {self.plan.actions}")

    def elapse(self, seconds: float) -> None:
        """Let the pods and tasks go on."""
        self.now += seconds
        for pod in list(self.pods.values()):
            if pod.deleting and self.now >= pod.delete_by and pod.node != "lost":
                self._remove(pod.name)
            elif pod.phase == "Pending" and not pod.deleting and self.now - pod.created >= START_SECONDS:
                self._start(pod)
            elif pod.restarts and not pod.running and self.now - self.scheduler_since >= BACK_OFF_SECONDS:
                self._set(pod, started=self.now, waiting="")
        present = {name for _, _, name in self._place()}
        for task in list(self.tasks):
            if task.worker in present:
                task.seconds -= seconds
                if task.seconds <= 0:
                    self.tasks.remove(task)
                    self.done[task.worker] = self.done.get(task.worker, 0) + 1
                    self._learn(task.resources)
        self._place()

    def _learn(self, resources: tuple[tuple[str, float], ...]) -> None:
        """One task of a kind has ended: the duration of the others is known."""
        for task in self.tasks:
            task.known = task.known or task.resources == resources

    def _start(self, pod: Pod) -> None:
        on_nodes = sum(1 for other in self.pods.values() if other.pool == pod.pool and other.node)
        if pod.pool and on_nodes >= self.nodes.get(pod.pool, 1000):
            self._set(pod, unschedulable="0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
        elif pod.pool or not pod.node:
            self._set(
                pod, phase="Running", ready=True, started=self.now, node="node-1", ip="10.0.0.1", unschedulable=""
            )
            if not pod.pool:
                self.scheduler_process += 1
                self.scheduler_since = self.now

    def _set(self, pod: Pod, **fields: Any) -> None:
        self.pods[pod.name] = replace(pod, version=str(int(pod.version) + 1), **fields)

    # the scheduler

    def workers(self) -> list[tuple[Pod, Pool, str]]:
        """Registered workers: their pod, its pool and their name."""
        pools = {pool.name: pool for pool in self.cluster.spec.pools}
        found = []
        for pod in sorted(self.pods.values(), key=lambda pod: pod.name):
            pool = pools.get(pod.pool)
            if pod.pool and pod.running and not pod.finished and self.now - pod.started >= 1:
                count = pool.workers_per_pod if pool else 1
                ends = [f"-{i}" for i in range(count)] if count > 1 else [""]
                found += [(pod, pool or self._any_pool(), pod.dask_name + end) for end in ends]
        return found

    def _any_pool(self) -> Pool:
        return self.cluster.spec.pools[0]

    def _place(self) -> list[tuple[Pod, Pool, str]]:
        """Give waiting tasks to open workers that can run them, the least loaded first."""
        workers = self.workers()
        present = {name for _, _, name in workers}
        for task in self.tasks:
            if task.worker and task.worker not in present:
                self.cut.append(task.worker)
                task.worker = ""
        load = {name: sum(1 for task in self.tasks if task.worker == name) for name in present}
        for task in self.tasks:
            if not task.worker and task.ready <= self.now:
                able = [
                    (load[name], name)
                    for pod, pool, name in workers
                    if pod.retirement is None and not pod.deleting and self._fits(task, pool, load[name])
                ]
                if able:
                    task.worker = min(able)[1]
                    load[task.worker] += 1
        own = {task.worker for task in self.tasks if task.worker}
        for name in present:
            if name in own:
                self.idle_since.pop(name, None)
            else:
                self.idle_since.setdefault(name, self.now)
        return workers

    def _fits(self, task: Task, pool: Pool, load: int) -> bool:
        """Whether one more of the kind of `task` runs at once on a worker with `load` tasks."""
        if not task.resources and self.cluster.spec.accepts(pool) == "annotated":
            return False
        offered = pool.offered_resources
        slots = [int(offered.get(name, 0) // amount) for name, amount in task.resources]
        return load < min([pool.threads_per_worker, *slots])

    def listen(self) -> Demand | None:
        """What the scheduler would say now."""
        scheduler = next((p for p in self.pods.values() if not p.pool and p.live and p.running), None)
        if scheduler is None or self.silent:
            return None
        workers = self._place()
        groups: dict[tuple[tuple[str, float], ...], list[Task]] = {}
        for task in self.tasks:
            groups.setdefault(task.resources, []).append(task)
        requirements = tuple(self._requirement(resources, group) for resources, group in sorted(groups.items()))
        return Demand(
            f"s{self.scheduler_process}/{self.now}",
            f"s{self.scheduler_process}",
            tasks=len(self.tasks) + sum(1 for blockers in self.held.values() if blockers),
            requirements=requirements,
            workers=tuple(self._worker(pod, name) for pod, _, name in workers),
            features=self.features,
        )

    def _requirement(self, resources: tuple[tuple[str, float], ...], group: list[Task]) -> Requirement:
        active = [task for task in group if task.ready <= self.now]
        waiting = [task.ready - self.now for task in group if task.ready > self.now]
        soonest = min(waiting, default=None)
        return Requirement(
            resources,
            waiting=len(waiting),
            unrunnable=sum(1 for task in active if not task.worker),
            processing=sum(1 for task in active if task.worker),
            seconds=sum(task.seconds for task in active if task.known),
            unknown=sum(1 for task in active if not task.known),
            next_seconds=None if soonest is None or not resources else self.estimate(soonest),
            next_tasks=sum(1 for seconds in waiting if seconds == soonest),
        )

    def _worker(self, pod: Pod, name: str) -> Worker:
        own = sum(1 for task in self.tasks if task.worker == name)
        held = self.held.get(pod.name, ())
        blockers = (*(("running",) if own else ()), *held)
        return Worker(
            name,
            pool=pod.pool,
            processing=own,
            own=own,
            idle_seconds=self.now - self.idle_since.get(name, self.now),
            blockers=blockers,
            retiring=self._retiring(pod, blockers),
            tasks_done=self.done.get(name, 0),
            sick=self.sick.get(name, ""),
        )

    def _retiring(self, pod: Pod, blockers: tuple[str, ...]) -> str:
        if pod.retirement is None:
            return ""
        dask_names = {name for other, _, name in self.workers() if other.name == pod.name}
        if any(task.worker in dask_names for task in self.tasks):
            return "draining"
        if [blocker for blocker in blockers if not (blocker == "data" and pod.retirement.release)]:
            return "blocked"
        return "drained"

    # passes

    def observe(self) -> Observation:
        """What a pass sees."""
        return seen(
            self.cluster,
            *sorted(self.pods.values(), key=lambda pod: pod.name),
            says=self.listen(),
            now=self.now,
            refused=self.refused,
            memory=dict(self.memory.pools),
            scheduler_since=max(self.scheduler_since, self.operator_since),
            frozen_at=self.memory.frozen_at,
            busy_at=self.memory.busy_at,
            joined=(joined := self._joined()),
            first_joined=joined,
        )

    def _joined(self) -> dict[str, float]:
        """When each worker joined; of those that were there before it an operator hears when it begins."""
        return {name: max(pod.started + 1, self.operator_since) for pod, _, name in self.workers()}

    def _tell(self) -> None:
        """Tell the scheduler who retires: it refuses a pod that has work by now."""
        demand = self.listen() if self._marked_now else None
        if demand is not None:
            self.refused = frozenset(
                pod.dask_name
                for pod in self.pods.values()
                if pod.retirement
                and pod.retirement.if_idle
                and pod.dask_name in self._marked_now
                and any(worker.own for worker in demand.workers_of(pod.dask_name))
            )
        self._marked_now.clear()

    _marked_now: set[str] = field(default_factory=set)

    def _carry_out(self, action: Action) -> None:
        match action:
            case CreateScheduler(name):
                self._create(name, "")
            case CreateWorker(pool, number):
                self._create(names.worker_pod(self.cluster.name, pool, number), pool)
            case DeletePod(pod, _, only_if_unchanged):
                self._delete(pod, only_if_unchanged=only_if_unchanged)
            case MarkRetiring(pod, retirement, failed):
                if failed:
                    self.memory.record_failure(pod.pool, self.now)
                if retirement is not None:
                    self._marked_now.add(pod.dask_name)
                self._set(self.pods[pod.name], retirement=retirement)
            case RemoveFromService(pod):
                self._set(self.pods[pod.name], serves=False)
            case MarkProtected(pod, annotations):
                if pod.name in self.pods:
                    said = dict(zip(EVICTION_ANNOTATIONS, pod.eviction_annotations, strict=False)) | annotations
                    self._set(
                        self.pods[pod.name],
                        eviction_annotations=tuple(said.get(name, "") for name in EVICTION_ANNOTATIONS),
                    )

    def _create(self, name: str, pool: str) -> None:
        assert name not in self.pods, f"{name} exists"
        if pool and current_scheduler(self.pods.values()) is None:
            return  # whose creation was refused in this pass
        if pool in self.quota or (self.places is not None and len(self.pods) >= self.places):
            error = ApiError(403, "Forbidden", "exceeded quota: q, requested: pods=1", f"POST {name}")
            self.memory.record_refusal(pool, error, self.now)
            return
        self._uids += 1
        spec = in_force(self.cluster.spec, current_scheduler(self.pods.values()))
        section = next((p for p in spec.pools if p.name == pool), None)
        made = spec_hash.of_worker(spec, section) if section else spec_hash.of_scheduler(spec)
        self.memory.record_creation(pool)
        self.created.append(name)
        self.pods[name] = Pod(
            uid=f"uid-{self._uids}",
            name=name,
            namespace="default",
            owner=self.cluster.owner_key,
            version="1",
            pool=pool,
            dask_name=f"{name}-{self._uids:05x}" if pool else "",
            spec_hash=made,
            created=self.now,
            serves=not pool,
            made_with=None if pool else MadeWith.of(spec),
        )

    def _delete(self, pod: Pod, *, only_if_unchanged: bool) -> None:
        current = self.pods[pod.name]
        if only_if_unchanged and current.version != pod.version:
            return
        if pod.finished and not pod.preempted:
            self.memory.record_failure(pod.pool, self.now)
        if pod.finished or not pod.running:
            self._remove(pod.name)
        else:
            self._set(current, delete_by=self.now + GRACE_SECONDS)

    def _remove(self, name: str) -> None:
        del self.pods[name]
        self.memory.record_gone(self.now)

    # what is seen

    def show(self, pool: str) -> str:
        """The pods of a pool by number, each with a letter: see `letter`."""
        pods = sorted((p for p in self.pods.values() if p.pool == pool), key=_number)
        return " ".join(f"{_number(pod)}{self.letter(pod)}" for pod in pods)

    def letter(self, pod: Pod) -> str:
        """As test_sequences explains it."""
        old = "'" if pod.pool in self.plan.pools and pod.spec_hash != self._hash(pod.pool) else ""
        if pod.finished:
            return "F" + old
        if pod.deleting:
            return "T" + old
        if not pod.running:
            return ("U" if pod.unschedulable else "P") + old
        if pod.retirement is not None:
            return "D" + old
        if self.now - pod.started < 1:
            return "S" + old
        return ("W" if any(task.worker.startswith(pod.dask_name) for task in self.tasks) else "I") + old

    def _hash(self, pool: str) -> str:
        return spec_hash.of_worker(self.cluster.spec, next(p for p in self.cluster.spec.pools if p.name == pool))

    @property
    def scheduler(self) -> str:
        """The scheduler pods' letters, by age."""
        pods = sorted((p for p in self.pods.values() if not p.pool), key=lambda p: p.created)
        letters = []
        for pod in pods:
            old = "'" if pod.spec_hash != spec_hash.of_scheduler(self.cluster.spec) else ""
            state = "F" if pod.finished else "T" if pod.deleting else "R" if pod.running else "P"
            letters.append(state + old)
        return " ".join(letters)


def _number(pod: Pod) -> int:
    return int(pod.name.rpartition("-")[2])
