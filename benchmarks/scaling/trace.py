"""A trace: the tasks of programs with their true durations, when they are submitted, and where they run. Values.

Traces are drawn from a seed: the shapes of programs that people run, drawn anew for each seed. No seed is special.
A trace is a session of an hour or so on one cluster: programs submitted one after another, with pauses in which
people look at results. So a duration is unknown once, in the first program. Nodes come after 0 to 300 s, the image is
pulled in 15 to 90 s; both are drawn for each trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any

from gpudask.api.pool import Pool
from gpudask.api.resource import API_VERSION, KIND, Cluster, parse
from gpudask.scaling.assignment import slots_per_pod
from gpudask.scaling.demand import Requirement

Json = dict[str, Any]
Resources = tuple[tuple[str, float], ...]

PLAIN: Resources = ()
GPU: Resources = (("GPU", 1.0),)
GPU_POOL = "gpu"
HALF_GPU: Resources = (("GPU", 0.5),)
BIG_GPU: Resources = (("GPU", 1.0), ("VRAM", 60e9))
MEMORY: Resources = (("MEMORY", 100e9),)
_STEADY_SECONDS = 1800.0
GPUS_PER_NODE = (1, 8)


@dataclass(frozen=True, slots=True)
class Task:
    """A task. Its number is its place in `Trace.tasks`; a lower number has priority. `needs`: tasks before it."""

    job: int
    prefix: str
    seconds: float
    resources: Resources = PLAIN
    needs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Machines:
    """Nodes and pods, in seconds. CPU nodes are always there, with the image; GPU nodes come when pods need them.

    `node_seconds`: from the pod that needs a node until the node is ready. `pull_seconds`: the image on a new node.
    `start_seconds`: from the container's start until its worker is registered; of each pod, up to a quarter longer.
    `end_seconds`: from a pod's deletion until its GPU is free. `give_back_seconds`: how long an empty node is kept.
    """

    gpus_per_node: int = 1
    node_seconds: float = 0.0
    pull_seconds: float = 0.0
    start_seconds: float = 4.0
    end_seconds: float = 1.0
    give_back_seconds: float = 600.0


@dataclass(frozen=True)
class Trace:
    """A trace: `submitted[job]` in seconds from the start. One pool at most has GPUs, `gpu`."""

    name: str
    tasks: Sequence[Task]
    submitted: Sequence[float]
    pools: Sequence[Json]
    machines: Machines = field(default_factory=Machines)
    seed: int = 0

    @cached_property
    def cluster(self) -> Cluster:
        """The resource, as the operator would read it."""
        metadata = {"name": "sim", "namespace": "default", "uid": "uid-of-sim", "generation": 1}
        spec = {"image": "registry.example/dask:1", "pools": list(self.pools)}
        return parse({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec})

    @cached_property
    def by_name(self) -> dict[str, Pool]:
        """The pools by name."""
        return {pool.name: pool for pool in self.cluster.spec.pools}

    @cached_property
    def serving(self) -> dict[Resources, tuple[str, ...]]:
        """The pools that can run each kind of task, cheapest first."""
        order = sorted(self.cluster.spec.pools, key=lambda pool: pool.gpus_per_pod)
        return {
            resources: tuple(pool.name for pool in order if self.slots(pool.name, resources))
            for resources in sorted({task.resources for task in self.tasks})
        }

    def slots(self, pool: str, resources: Resources) -> int:
        """How many such tasks a pod of `pool` runs at once."""
        return slots_per_pod(self.cluster.spec, self.by_name[pool], Requirement(resources))

    def most_pods(self, pool: str) -> int:
        """The largest size of `pool`."""
        section = self.by_name[pool]
        if section.autoscale is not None:
            return section.autoscale.max
        return 1 if section.replicas is None else section.replicas

    def __str__(self) -> str:
        """Name, seed and nodes."""
        return f"{self.name}/{self.machines.gpus_per_node}gpu/{self.seed}"


@dataclass(frozen=True)
class Settings:
    """The `autoscale` that a user of these traces would write; docs/benchmarks.md says why."""

    idle_timeout: str = "7s"
    target_duration: str = "45s"


@dataclass
class Program:
    """The session under construction."""

    random: Random
    tasks: list[Task] = field(default_factory=list)
    submitted: list[float] = field(default_factory=list)

    def submit(self, at: float) -> None:
        """Begin a new submission; the tasks that follow belong to it."""
        self.submitted.append(at)

    def add(self, prefix: str, seconds: float, resources: Resources = PLAIN, needs: Sequence[int] = ()) -> int:
        """Add a task; its number."""
        self.tasks.append(Task(len(self.submitted) - 1, prefix, seconds, resources, tuple(needs)))
        return len(self.tasks) - 1

    def around(self, seconds: float) -> float:
        """A duration that is seconds on average, and a fifth more or less."""
        return seconds * max(0.2, self.random.gauss(1.0, 0.2))

    def pauses(self, count: int, work_seconds: float) -> list[float]:
        """When so many programs are submitted that keep the cluster busy for so long each."""
        at, times = 0.0, []
        for _ in range(count):
            times.append(at)
            at += work_seconds + self.random.expovariate(1 / 180.0)
        return times


def bursts(p: Program) -> None:
    """Equal GPU tasks, many at once, several times."""
    seconds = p.random.uniform(8, 40)
    for at in p.pauses(p.random.randint(3, 6), 240.0):
        p.submit(at)
        for _ in range(p.random.randint(30, 120)):
            p.add("train", p.around(seconds), GPU)


def long_tail(p: Program) -> None:
    """GPU tasks of which a few take ten times as long as most."""
    typical = p.random.uniform(5, 15)
    for at in p.pauses(p.random.randint(2, 4), 400.0):
        p.submit(at)
        for _ in range(p.random.randint(100, 200)):
            p.add("fit", min(typical * p.random.lognormvariate(0, 0.9), 20 * typical), GPU)


def steady(p: Program) -> None:
    """GPU tasks that come one by one for half an hour, work for two to five GPUs."""
    seconds, busy = p.random.uniform(5, 20), p.random.uniform(2, 5)
    at = 0.0
    while at < _STEADY_SECONDS:
        p.submit(at)
        p.add("infer", p.around(seconds), GPU)
        at += p.random.expovariate(busy / seconds)


def barrier(p: Program) -> None:
    """A CPU phase, then a GPU phase on its result, then a summary."""
    clean, train = p.random.uniform(6, 15), p.random.uniform(10, 30)
    for at in p.pauses(p.random.randint(3, 5), 300.0):
        p.submit(at)
        cleaned = [p.add("clean", p.around(clean)) for _ in range(p.random.randint(200, 400))]
        joined = p.add("join", 1.0, PLAIN, cleaned)
        trained = [p.add("train", p.around(train), GPU, [joined]) for _ in range(p.random.randint(40, 100))]
        p.add("summary", 2.0, PLAIN, trained)


def pipelined(p: Program) -> None:
    """Each GPU task has a CPU task before it, and runs as soon as that has ended."""
    load, train = p.random.uniform(10, 25), p.random.uniform(5, 20)
    for at in p.pauses(p.random.randint(3, 5), 300.0):
        p.submit(at)
        n = p.random.randint(100, 300)
        loaded = [p.add("load", p.around(load)) for _ in range(n)]
        trained = [p.add("train", p.around(train), GPU, [number]) for number in loaded]
        p.add("summary", 2.0, PLAIN, trained)


def tiny(p: Program) -> None:
    """Thousands of GPU tasks of a tenth of a second."""
    seconds = p.random.uniform(0.05, 0.3)
    for at in p.pauses(p.random.randint(3, 5), 120.0):
        p.submit(at)
        for _ in range(p.random.randint(500, 2000)):
            p.add("score", p.around(seconds), GPU)


def huge(p: Program) -> None:
    """A few GPU tasks of many minutes."""
    seconds = p.random.uniform(300, 900)
    for at in p.pauses(p.random.randint(2, 3), 1200.0):
        p.submit(at)
        for _ in range(p.random.randint(4, 12)):
            p.add("simulate", p.around(seconds), GPU)


def mixed(p: Program) -> None:
    """CPU work all the time, and GPU work of its own beside it now and then."""
    for at in p.pauses(p.random.randint(4, 7), 200.0):
        p.submit(at)
        for _ in range(p.random.randint(100, 400)):
            p.add("transform", p.around(8.0))
        for _ in range(p.random.randint(0, 1) * p.random.randint(10, 80)):
            p.add("embed", p.around(15.0), GPU)


def several_resources(p: Program) -> None:
    """Whole and half GPUs, GPUs with much memory, and CPU workers with much memory."""
    for at in p.pauses(p.random.randint(3, 5), 250.0):
        p.submit(at)
        gathered = p.add("gather", p.around(40.0), MEMORY)
        whole = [p.add("train", p.around(25.0), GPU) for _ in range(p.random.randint(10, 40))]
        half = [p.add("score", p.around(6.0), HALF_GPU, [gathered]) for _ in range(p.random.randint(50, 150))]
        big = [p.add("tune", p.around(50.0), BIG_GPU) for _ in range(p.random.randint(3, 12))]
        p.add("merge", p.around(20.0), MEMORY, [*whole, *half, *big])


FAMILIES: dict[str, Callable[[Program], None]] = {
    shape.__name__: shape
    for shape in (bursts, long_tail, steady, barrier, pipelined, tiny, huge, mixed, several_resources)
}


def generate(name: str, seed: int, gpus_per_node: int, settings: Settings | None = None) -> Trace:
    """The trace of that family and seed. The same tasks come for all kinds of nodes."""
    random = Random(f"{name}/{seed}")  # noqa: S311 - a simulation, no secret
    machines = Machines(
        gpus_per_node=gpus_per_node,
        node_seconds=random.uniform(0, 300),
        pull_seconds=random.uniform(15, 90),
        start_seconds=random.uniform(3, 6),
    )
    program = Program(random)
    FAMILIES[name](program)
    pools = _pools(most_gpus=8 if gpus_per_node == 1 else 2 * gpus_per_node, settings=settings or Settings())
    return Trace(name, tuple(program.tasks), tuple(program.submitted), tuple(pools), machines, seed)


def _pools(*, most_gpus: int, settings: Settings) -> list[Json]:
    times = {"idleTimeout": settings.idle_timeout, "targetDuration": settings.target_duration}
    return [
        {"name": "cpu", "resources": {"cpu": 4, "memory": "16Gi"}, "autoscale": {"min": 1, "max": 8, **times}},
        {
            "name": "himem",
            "resources": {"cpu": 1, "memory": "128Gi"},
            "offers": {"MEMORY": "120G"},
            "accepts": "annotated",
            "autoscale": {"min": 0, "max": 2, **times},
        },
        {
            "name": "gpu",
            "resources": {"cpu": 2, "memory": "64Gi"},
            "gpu": {"count": 1},
            "nthreads": 2,
            "offers": {"GPU": 1, "VRAM": "80G"},
            "autoscale": {"min": 0, "max": most_gpus, **times},
        },
    ]


def all_traces(seeds: Sequence[int], settings: Settings | None = None) -> list[Trace]:
    """Every family on every kind of node, for each seed."""
    return [generate(name, seed, gpus, settings) for seed in seeds for name in FAMILIES for gpus in GPUS_PER_NODE]
