"""The state of the demonstration, and its reducer: one more fact, the next state. Pure.

Facts are what the watches and the pipeline report, each with the seconds since the start. `View` is their fold:
drawing, the summary and the plot all read it and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gpudask.api import Json
from gpudask.api.resource import LABEL_POOL, parse_status
from gpudask.api.status import Status


@dataclass(frozen=True)
class ClusterFact:
    """The resource's status, as written last."""

    at: float
    status: Status


@dataclass(frozen=True)
class PodFact:
    """One worker pod, by the API server's word. `gone`: it is deleted."""

    at: float
    name: str
    pool: str
    ready: bool = False
    leaving: bool = False
    gone: bool = False


@dataclass(frozen=True)
class EventFact:
    """An event of the cluster, as `kubectl describe` shows it."""

    at: float
    kind: str
    reason: str
    message: str


@dataclass(frozen=True)
class LineFact:
    """A line that the pipeline printed."""

    at: float
    text: str


Fact = ClusterFact | PodFact | EventFact | LineFact


@dataclass(frozen=True)
class PoolView:
    """One pool at a moment. Pods are counted from the pods themselves, all else is the status'."""

    name: str
    desired: int = 0
    ready: int = 0
    pending: int = 0
    leaving: int = 0
    gpus_held: int = 0
    waiting: int = 0
    running: int = 0
    reason: str = ""

    @property
    def empty(self) -> bool:
        """No pod is there and none is wanted."""
        return not (self.desired or self.ready or self.pending or self.leaving)


@dataclass(frozen=True)
class Sample:
    """All pools from `at` seconds on."""

    at: float
    pools: tuple[PoolView, ...]


@dataclass(frozen=True)
class View:
    """Everything that was seen up to now."""

    status: Status = field(default_factory=Status)
    pods: dict[str, PodFact] = field(default_factory=dict)
    events: tuple[EventFact, ...] = ()
    lines: tuple[LineFact, ...] = ()
    samples: tuple[Sample, ...] = ()

    @property
    def pools(self) -> tuple[PoolView, ...]:
        """The pools now."""
        return self.samples[-1].pools if self.samples else ()

    def pool(self, name: str) -> PoolView:
        """One pool now; an empty one where nothing is known of it."""
        return next((pool for pool in self.pools if pool.name == name), PoolView(name))

    def gpu_seconds(self) -> tuple[float, float]:
        """GPU-seconds held and used since the cluster was made, by the operator's count."""
        pools = self.status.pools
        return sum(pool.gpu_seconds_held for pool in pools), sum(pool.gpu_seconds_used for pool in pools)


def apply(view: View, fact: Fact) -> View:
    """The view after one more fact."""
    match fact:
        case EventFact():
            return replace(view, events=(*view.events, fact))
        case LineFact():
            return replace(view, lines=(*view.lines, fact))
        case ClusterFact():
            view = replace(view, status=fact.status)
        case PodFact():
            pods = {name: pod for name, pod in view.pods.items() if name != fact.name}
            view = replace(view, pods=pods if fact.gone else pods | {fact.name: fact})
    pools = _pools(view)
    if pools == view.pools:
        return view
    return replace(view, samples=(*view.samples, Sample(fact.at, pools)))


def _pools(view: View) -> tuple[PoolView, ...]:
    names = [pool.name for pool in view.status.pools]
    names += sorted({pod.pool for pod in view.pods.values()} - set(names))
    return tuple(_pool(view, name) for name in names)


def _pool(view: View, name: str) -> PoolView:
    pods = [pod for pod in view.pods.values() if pod.pool == name]
    staying = [pod for pod in pods if not pod.leaving]
    counted = PoolView(
        name,
        ready=sum(pod.ready for pod in staying),
        pending=sum(not pod.ready for pod in staying),
        leaving=len(pods) - len(staying),
    )
    status = next((pool for pool in view.status.pools if pool.name == name), None)
    if status is None:
        return counted
    return replace(
        counted,
        desired=status.desired,
        gpus_held=status.gpus_held,
        waiting=status.demand.waiting,
        running=status.demand.running,
        reason=status.message or status.reason,
    )


# ------------------------------------------------------------------ from the API server's JSON


def cluster_fact(at: float, body: Json) -> ClusterFact:
    """The fact in a GpuDaskCluster."""
    return ClusterFact(at, parse_status(body))


def pod_fact(at: float, change: str, body: Json) -> PodFact | None:
    """The fact in a watch event of a pod; None for the scheduler's, which is of no pool."""
    metadata, status = body["metadata"], body.get("status", {})
    pool = metadata.get("labels", {}).get(LABEL_POOL, "")
    if not pool:
        return None
    conditions = {item["type"]: item["status"] for item in status.get("conditions", [])}
    return PodFact(
        at,
        metadata["name"],
        pool,
        ready=conditions.get("Ready") == "True",
        leaving="deletionTimestamp" in metadata,
        gone=change == "DELETED",
    )


def event_fact(at: float, body: Json) -> EventFact:
    """The fact in a core/v1 event."""
    count = (body.get("series") or {}).get("count") or body.get("count") or 1
    repeated = f" ({count} times)" if count > 1 else ""
    return EventFact(at, body.get("type", ""), body.get("reason", ""), f"{body.get('message', '')}{repeated}")
