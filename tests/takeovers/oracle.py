"""The oracle: what the statuses that are written count of GPUs, beside what the pods lived."""

from __future__ import annotations

from gpudask.api import Json
from gpudask.api.resource import LABEL_POOL
from gpudask.api.status import epoch
from tests.chaos.audit import PoolSample
from tests.chaos.lifetimes import Comparison, Lifetimes, compare
from tests.takeovers.api_server import POOL, UID, ApiServer, PodEvent
from tests.takeovers.timeline import EPOCH, Timeline

_CLUSTER = "demo"


class Oracle:
    """Sees all pods and statuses of an API server without any delay."""

    def __init__(self, timeline: Timeline, server: ApiServer) -> None:
        self._timeline = timeline
        self._lifetimes = Lifetimes()
        self._lifetimes.listed([], EPOCH)
        self._samples: list[PoolSample] = []
        server.on_pod, server.on_status = self._see_pod, self._see_status

    def comparison(self) -> Comparison:
        """The last count beside the pods' lifetimes, at the end of a history."""
        self._lifetimes.silent(self._timeline.wall)
        return compare(self._lifetimes, self._samples)

    def _see_pod(self, event: PodEvent) -> None:
        pod = event.pod
        body = {
            "metadata": {
                "uid": pod.uid,
                "labels": {LABEL_POOL: pod.pool},
                "ownerReferences": [{"uid": UID, "controller": True}],
            },
            "spec": {
                "nodeName": pod.node,
                "containers": [{"resources": {"limits": {"nvidia.com/gpu": str(pod.gpus)}}}],
            },
            "status": {"phase": pod.phase},
        }
        self._lifetimes.heard({"type": event.type, "object": body}, self._timeline.wall)

    def _see_status(self, writer: str, status: Json) -> None:
        (row,) = (row for row in status["pools"] if row["name"] == POOL)
        # What was too much, and is left out of what is counted next, is known to be so; as a record has it.
        held = row.get("gpuSecondsHeld", 0.0) - row.get("gpuSecondsSurplus", 0.0)
        counted_at = epoch(status["countedAt"])
        assert counted_at is not None, "each count says up to when"
        counted_at -= self._timeline.server_set
        lived = sum(each.gpu_seconds(counted_at)[1] for each in self._lifetimes.pods.values())
        text = f"{writer} wrote {held:.1f} GPU-seconds up to {counted_at - EPOCH:.1f}, {row.get('gpusHeld', 0)} GPUs"
        self._timeline.note(text, held - lived)
        self._samples.append(PoolSample(UID, _CLUSTER, POOL, held, 0.0, counted_at, self._timeline.wall))
