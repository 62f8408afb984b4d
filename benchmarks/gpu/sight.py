"""What a watch tells of a cluster's pods, and when: `time.time()` seconds of this machine."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.kubectl import BenchmarkError

WATCH = ("get", "pods", "--watch", "--output-watch-events", "--output=json")
"""What kubectl is told, for a `PodWatch` to read."""
_POLL_SECONDS = 0.1


@dataclass
class SeenPod:
    """One pod; 0.0 for what has not happened."""

    name: str
    pool: str
    created: float
    placed: float = 0.0
    running: float = 0.0
    leaving: float = 0.0
    gone: float = 0.0

    def held_seconds(self, begin: float, end: float) -> float:
        """For how long, between two times, it had a node: its GPUs are nobody else's then."""
        if not self.placed:
            return 0.0
        return max(0.0, min(self.gone or end, end) - max(self.placed, begin))


class PodWatch(threading.Thread):
    """Reads what `kubectl` writes for `WATCH`, of a namespace's pods, until that is ended."""

    def __init__(self, lines: Iterable[str]) -> None:
        super().__init__(daemon=True)
        self._lines = lines
        self._pods: dict[str, SeenPod] = {}

    def run(self) -> None:
        """Read events: kubectl writes each as one line of JSON."""
        for line in self._lines:
            event = json.loads(line)
            self._see(event["type"], event["object"], time.time())

    def pods(self, pool: str) -> list[SeenPod]:
        """All pods of a pool that were ever seen, the oldest first."""
        return sorted((pod for pod in list(self._pods.values()) if pod.pool == pool), key=lambda pod: pod.created)

    def until(self, found: Callable[[list[SeenPod]], list[SeenPod]], what: str, pool: str, seconds: float) -> SeenPod:
        """Wait for pods of `pool` that `found` picks from all that were seen. Returns the last of them.

        Raises:
            BenchmarkError: none came, or nobody watches any more; the text has `what` and all that was seen.
        """
        deadline = time.monotonic() + seconds
        while not (picked := found(self.pods(pool))):
            if not self.is_alive():
                raise BenchmarkError(f"{what}: the watch on pods has ended, so nobody can tell")
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{what}: not within {seconds:.0f} s; seen of pool {pool}: {self.pods(pool)}")
            time.sleep(_POLL_SECONDS)
        return picked[-1]

    def until_all_gone(self, pool: str, seconds: float) -> SeenPod:
        """Wait until pods of `pool` were there and none is left. Returns the one that went last.

        Raises:
            BenchmarkError: some are left, or none was ever seen.
        """

        def gone(pods: list[SeenPod]) -> list[SeenPod]:
            return sorted(pods, key=lambda pod: pod.gone) if all(pod.gone for pod in pods) else []

        return self.until(gone, "all idle pods are gone", pool, seconds)

    def _see(self, kind: str, body: dict[str, Any], now: float) -> None:
        meta, status = body["metadata"], body.get("status", {})
        labels = meta.get("labels", {})
        pod = self._pods.setdefault(meta["uid"], SeenPod(meta["name"], labels.get("gpudask.dev/pool", ""), now))
        states = [row.get("state", {}) for row in status.get("containerStatuses", [])]
        if body["spec"].get("nodeName"):
            pod.placed = pod.placed or now
        if states and all("running" in state for state in states):
            pod.running = pod.running or now
        if "deletionTimestamp" in meta:
            pod.leaving = pod.leaving or now
        if kind == "DELETED":
            pod.gone = now
