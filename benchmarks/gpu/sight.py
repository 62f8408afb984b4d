"""What a watch tells of a cluster's pods, and when: `time.time()` seconds of this machine."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


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
    """Reads `kubectl get --watch` of a namespace's pods until that is ended."""

    def __init__(self, lines: Iterable[str]) -> None:
        super().__init__(daemon=True)
        self._lines = lines
        self._pods: dict[str, SeenPod] = {}

    def run(self) -> None:
        """Read events: each is a JSON object that ends with a brace at the line's begin."""
        text: list[str] = []
        for line in self._lines:
            text.append(line)
            if line.rstrip("\n") == "}":
                event = json.loads("".join(text))
                text.clear()
                self._see(event["type"], event["object"], time.time())

    def pods(self, pool: str) -> list[SeenPod]:
        """All pods of a pool that were ever seen, the oldest first."""
        return sorted((pod for pod in list(self._pods.values()) if pod.pool == pool), key=lambda pod: pod.created)

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
