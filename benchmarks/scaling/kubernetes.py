"""A thin Kubernetes: pods wait for a node, pull, start and end; GPU nodes come when they are needed and go when empty.

No API and no conflicts: what is asked for is done at once. CPU pods find their node at once and have their image.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from benchmarks.scaling.clock import Clock
from benchmarks.scaling.trace import Machines
from gpudask.planning.observed.pods import Pod, Retirement

# Times of observed pods are seconds since the epoch, and 0 means never.
EPOCH = 1_800_000_000.0
_NODE_JITTER = 0.1  # a node comes up to so much sooner or later
_START_JITTER = 0.25  # a process starts up to so much later
_NO_NODE = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


@dataclass
class Node:
    """A GPU node. `used_since`: since when it holds pods, None while empty. Only then it pulls its image."""

    name: str
    free: int
    pull_left: float
    used_since: float | None = None
    emptied: int = 0

    def image_in(self, now: float) -> float:
        """In how many seconds the image is there, if a pod stays here so long."""
        return max(0.0, self.pull_left - (0.0 if self.used_since is None else now - self.used_since))


@dataclass(frozen=True, slots=True)
class Holding:
    """GPUs held from one time to another."""

    begin: float
    end: float
    gpus: int

    @property
    def gpu_seconds(self) -> float:
        """What is paid."""
        return (self.end - self.begin) * self.gpus


class Kubernetes:
    """`started` and `ended` are told of containers, `changed` of every change that an operator would see."""

    def __init__(
        self,
        clock: Clock,
        machines: Machines,
        seed: int,
        *,
        started: Callable[[Pod], None],
        ended: Callable[[Pod], None],
        changed: Callable[[], None],
    ) -> None:
        self.pods: dict[str, Pod] = {}
        self.held_by_pods: list[Holding] = []
        self.held_by_nodes: list[Holding] = []
        self._clock = clock
        self._machines = machines
        self._seed = seed
        self._randoms: dict[str, Random] = {}  # one for each pool and for the nodes: they do not influence each other
        self._started, self._ended, self._changed = started, ended, changed
        self._nodes: dict[str, Node] = {}
        self._bound: dict[str, float] = {}  # uid -> since when it holds its GPUs
        self._gpus: dict[str, int] = {}  # uid -> GPUs
        self._coming = 0
        self._made = 0

    @property
    def now(self) -> float:
        """The time as pods tell it: seconds since the epoch."""
        return EPOCH + self._clock.now

    @property
    def held_gpus(self) -> int:
        """GPUs that pods hold now."""
        return sum(self._gpus[uid] for uid in self._bound)

    def create(self, name: str, pool: str, *, gpus: int, dask_name: str, spec_hash: str) -> None:
        """Create a pod."""
        assert name not in self.pods, f"{name} exists"
        self._made += 1
        pod = Pod(
            uid=f"uid-{self._made}",
            name=name,
            namespace="default",
            owner="uid-of-sim",
            version="1",
            pool=pool,
            dask_name=dask_name,
            spec_hash=spec_hash,
            created=self.now,
        )
        self.pods[name] = pod
        self._gpus[pod.uid] = gpus
        self._place(pod)
        self._changed()

    def put(self, pod: Pod) -> None:
        """Put a pod there that runs and holds nothing: the scheduler's."""
        self.pods[pod.name] = pod

    def annotate(self, name: str, retirement: Retirement | None) -> None:
        """Write a retirement on a pod, or take it off."""
        self._set(self.pods[name], retirement=retirement)

    def delete(self, pod: Pod, *, only_if_unchanged: bool = False) -> None:
        """Delete a pod; one that does not run yet is gone at once."""
        current = self.pods.get(pod.name)
        if current is None or current.uid != pod.uid or current.deleting:
            return
        if only_if_unchanged and current.version != pod.version:
            return
        if not current.running:
            self._remove(current.name, current.uid)
            return
        self._set(current, delete_by=self.now + self._machines.end_seconds)
        self._ended(current)
        self._clock.after(self._machines.end_seconds, partial(self._remove, current.name, current.uid))

    def _random(self, of: str) -> Random:
        return self._randoms.setdefault(of, Random(f"{self._seed}/{of}"))  # noqa: S311 - a simulation, no secret

    def _set(self, pod: Pod, **fields: object) -> Pod:
        changed = replace(pod, version=str(int(pod.version) + 1), **fields)  # type: ignore[arg-type]
        self.pods[pod.name] = changed
        self._changed()
        return changed

    def _place(self, pod: Pod) -> None:
        gpus = self._gpus[pod.uid]
        if not gpus:
            self._clock.after(0.0, partial(self._start, pod.name, pod.uid))
            return
        fitting = [node for node in self._nodes.values() if node.free >= gpus]
        if not fitting:
            if not pod.unschedulable:
                self._set(pod, unschedulable=_NO_NODE)
            self._order_nodes()
            return
        node = min(fitting, key=lambda node: node.free)  # the fullest: the affinity of GPU pods (desired/workers.py)
        node.free -= gpus
        if node.used_since is None:
            node.used_since = self._clock.now
        self._bound[pod.uid] = self._clock.now
        self._set(pod, node=node.name, placed=self.now, unschedulable="")
        self._clock.after(node.image_in(self._clock.now), partial(self._start, pod.name, pod.uid))

    def _order_nodes(self) -> None:
        """As many nodes as the waiting pods fill, less those that come already."""
        waiting = sum(self._gpus[pod.uid] for pod in self.pods.values() if pod.unschedulable)
        while self._coming * self._machines.gpus_per_node < waiting:
            self._coming += 1
            jitter = 1 + self._random("nodes").uniform(-_NODE_JITTER, _NODE_JITTER)
            self._clock.after(self._machines.node_seconds * jitter, self._node_comes)

    def _node_comes(self) -> None:
        self._coming -= 1
        name = f"gpu-node-{len(self._nodes)}-{self._clock.now:.0f}"
        node = Node(name, self._machines.gpus_per_node, self._machines.pull_seconds)
        self._nodes[name] = node
        self._fill()
        self._watch_empty(node)

    def _fill(self) -> None:
        for pod in sorted((pod for pod in self.pods.values() if pod.unschedulable), key=lambda pod: pod.created):
            self._place(pod)

    def _watch_empty(self, node: Node) -> None:
        if node.used_since is None:
            node.emptied += 1
            self._clock.after(self._machines.give_back_seconds, partial(self._give_back, node, node.emptied))

    def _give_back(self, node: Node, emptied: int) -> None:
        if node.used_since is None and node.emptied == emptied:
            self._nodes.pop(node.name, None)

    def _start(self, name: str, uid: str) -> None:
        pod = self.pods.get(name)
        if pod is None or pod.uid != uid:
            return
        pod = self._set(pod, phase="Running", ready=True, started=self.now, ip="10.0.0.1")
        seconds = self._machines.start_seconds * (1 + self._random(pod.pool).uniform(0, _START_JITTER))
        self._clock.after(seconds, partial(self._started, pod))

    def _remove(self, name: str, uid: str) -> None:
        pod = self.pods.get(name)
        if pod is None or pod.uid != uid:
            return
        del self.pods[name]
        begin, gpus = self._bound.pop(uid, None), self._gpus.pop(uid)
        if begin is not None:
            self.held_by_pods.append(Holding(begin, self._clock.now, gpus))
            self._leave(self._nodes[pod.node], gpus)
        self._changed()

    def _leave(self, node: Node, gpus: int) -> None:
        node.free += gpus
        if node.free == self._machines.gpus_per_node:
            assert node.used_since is not None, "a pod held it"
            node.pull_left = node.image_in(self._clock.now)
            self.held_by_nodes.append(Holding(node.used_since, self._clock.now, self._machines.gpus_per_node))
            node.used_since = None
            self._watch_empty(node)
        self._fill()
