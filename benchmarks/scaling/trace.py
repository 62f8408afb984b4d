"""A trace: the tasks of programs with their true durations, when they are submitted, and where they run. Values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
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
    """What is submitted when: `submitted[job]` in seconds from the start. One pool at most has GPUs, `gpu`."""

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
