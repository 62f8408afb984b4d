"""Pods as a watch saw them, with the times of their changes, by any clock. The standard library alone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

_POOL, _CLUSTER, _COMPONENT = "gpudask.dev/pool", "dask.org/cluster-name", "dask.org/component"


@dataclass
class SeenPod:
    """One pod, and when the watch told of it: seconds, 0.0 for what has not happened.

    `placed`: since when it has a node; `leaving`: since when it is asked to end.
    """

    name: str
    pool: str
    created: float
    placed: float = 0.0
    running: float = 0.0
    leaving: float = 0.0
    gone: float = 0.0
    cluster: str = ""
    is_worker: bool = False

    def held_seconds(self, begin: float, end: float) -> float:
        """For how long, between two times, it had a node: its GPUs are nobody else's then."""
        if not self.placed:
            return 0.0
        return max(0.0, min(self.gone or end, end) - max(self.placed, begin))


class SeenPods:
    """All pods that a watch ever told of, by their uid."""

    def __init__(self) -> None:
        self._by_uid: dict[str, SeenPod] = {}

    def all(self) -> list[SeenPod]:
        """Those that are gone included; another thread may see more of them meanwhile."""
        return list(self._by_uid.values())

    def see(self, event: Json, now: float) -> SeenPod:
        """Take in one event of the watch, which came at this time."""
        body = event["object"]
        metadata, status = body["metadata"], body.get("status", {})
        labels = metadata.get("labels", {})
        new = SeenPod(
            metadata["name"],
            labels.get(_POOL, ""),
            now,
            cluster=labels.get(_CLUSTER, ""),
            is_worker=labels.get(_COMPONENT) == "worker",
        )
        pod = self._by_uid.setdefault(metadata["uid"], new)
        states = [row.get("state", {}) for row in status.get("containerStatuses", [])]
        if body.get("spec", {}).get("nodeName"):
            pod.placed = pod.placed or now
        if states and all("running" in state for state in states):
            pod.running = pod.running or now
        if "deletionTimestamp" in metadata:
            pod.leaving = pod.leaving or now
        if event["type"] == "DELETED":
            pod.gone = now
        return pod

    def only(self, uids: Collection[str], now: float) -> None:
        """A new list has these and no others: all others are gone, at this time at the latest."""
        for uid in self._by_uid.keys() - set(uids):
            self._by_uid[uid].gone = self._by_uid[uid].gone or now
