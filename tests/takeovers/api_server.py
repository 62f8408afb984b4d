"""An API server in memory: one cluster, its pods, all that happened to them, and the lease of the leader.

What it does takes effect at once, unless it hangs. How long it hangs, refuses, loses answers, or has its watches fall
behind is set from outside, each as the time until when.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from gpudask.api import Json
from gpudask.api.resource import owner_key
from gpudask.api.status import PoolStatus, Status
from gpudask.clients.errors import ApiError
from gpudask.planning.observed.pods import Pod
from tests.builders import a_manifest, a_pool
from tests.planning.builders import stored
from tests.takeovers.timeline import Timeline

UID: Final = "u"
POOL: Final = "gpu"
_LONG_AGO = -99.0
# Of requests, while the server hangs, refuses or loses answers: the shares of those that arrive, and that fail.
_ARRIVE, _REFUSED, _LOST = 0.7, 0.7, 0.6
_THAW_SECONDS = 0.3  # after the server hung, in which it serves what has waited
_ANSWER_SECONDS = 0.1
_TIMEOUT_SECONDS = 10.0  # of an operator's request


@dataclass
class Lease:
    """Who leads, by name; empty: nobody. `renewed`: when it said so last, in seconds since the history began."""

    holder: str = ""
    renewed: float = _LONG_AGO


@dataclass(frozen=True)
class PodEvent:
    """A change of a pod, as a watch tells it: ADDED, MODIFIED or DELETED."""

    type: str
    pod: Pod


class ApiServer:
    """`cluster`: the resource. `pods`: those that exist, by uid, as stamped. `*_events`: all that ever happened.

    `outages`: while it hangs it works for nobody, and no pod changes; else it hangs for the operators alone.

    `on_pod` is called with each event of a pod, and `on_status` with who wrote which status; both at once.
    """

    def __init__(self, timeline: Timeline, *, outages: bool = False) -> None:
        self._timeline = timeline
        self.outages = outages
        self.hangs_until = self.behind_until = self.loses_until = self.refuses_until = 0.0
        self.lease = Lease()
        self._version = 1
        self.cluster = stored(a_manifest(a_pool(POOL, gpu={})), uid=UID, resourceVersion="1")
        empty = Status(pools=[PoolStatus(name=POOL)], counted_at="", observed_generation=1)
        self.cluster["status"] = empty.model_dump(mode="json", by_alias=True, exclude_none=True)
        self.namespace = str(self.cluster["metadata"]["namespace"])
        self.owner = owner_key(self.namespace, UID)
        self.cluster_events = [self.cluster]
        self.pods: dict[str, Pod] = {}
        self.pod_events: list[PodEvent] = []
        self.on_pod: Callable[[PodEvent], None] = lambda _event: None
        self.on_status: Callable[[str, Json], None] = lambda _writer, _status: None

    @property
    def answers(self) -> bool:
        """Whether the server answers, and does not hang."""
        return self._timeline.now >= self.hangs_until

    @property
    def works(self) -> bool:
        """Whether pods can change."""
        return self.answers or not self.outages

    def put_pod(self, kind: str, pod: Pod) -> None:
        """Store a pod, or remove it, by an event of that type."""
        self._version += 1
        changed = replace(pod, version=str(self._version))
        if kind == "DELETED":
            del self.pods[pod.uid]
        else:
            self.pods[pod.uid] = changed
        event = PodEvent(kind, changed)
        self.pod_events.append(event)
        self.on_pod(event)

    def annotate(self) -> None:
        """Somebody edits the cluster's annotations."""
        self._put_cluster(self.cluster, annotations={"example.com/at": str(self._version + 1)})

    def get_cluster(self) -> Json:
        """The resource.

        Raises:
            ApiError: the server hangs, or refuses.
        """
        if not self.answers or self._refuses():
            raise ApiError(0, "", "no answer", "GET")
        return self.cluster

    def write_status(self, writer: str, version: str, status: Json, block: Callable[[float], None]) -> Json:
        """Write the status of the cluster, where it has that version; the resource after that.

        `block` is called with the time until which the writer waits for an answer, where the server hangs.

        Raises:
            ApiError: the server hangs, refuses, or has another version; or its answer is lost.
        """
        chance, now = self._timeline.chance, self._timeline.now
        if not self.answers:
            at = self.hangs_until + chance.uniform(0, _THAW_SECONDS)
            if chance.random() < _ARRIVE:
                self._timeline.later(at, lambda: self._apply(writer, version, status))
            block(min(at + _ANSWER_SECONDS, now + _TIMEOUT_SECONDS))
            raise ApiError(0, "", "no answer in time", "PATCH")
        if self._refuses():
            raise ApiError(chance.choice((429, 500)), "", "refused", "PATCH")
        if not self._apply(writer, version, status):
            raise ApiError(409, "Conflict", "the resourceVersion is another one", "PATCH")
        if now < self.loses_until and chance.random() < _LOST:
            self._timeline.note("  its answer is lost")
            raise ApiError(0, "", "the answer is lost", "PATCH")
        return self.cluster

    def _refuses(self) -> bool:
        return self._timeline.now < self.refuses_until and self._timeline.chance.random() < _REFUSED

    def _apply(self, writer: str, version: str, status: Json) -> bool:
        """Whether the cluster has that version, and so the status is written."""
        if self.cluster["metadata"]["resourceVersion"] != version:
            return False
        self._put_cluster(self.cluster | {"status": status})
        self.on_status(writer, status)
        return True

    def _put_cluster(self, body: Json, **metadata: object) -> None:
        self._version += 1
        metadata["resourceVersion"] = str(self._version)
        self.cluster = body | {"metadata": body["metadata"] | metadata}
        self.cluster_events.append(self.cluster)
