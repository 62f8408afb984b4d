"""An observer from outside: pods, the clusters' counters, the Lease, requests; and what must never be seen.

Everything is checked at each event, not only when all is over: a pod that was there twice for a moment counts. Times
are those at which this process heard of it, in `time.monotonic` seconds.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpudask.api.resource import ANNOTATION_DASK_NAME, LABEL_CLUSTER, LABEL_POOL
from gpudask.clients.lease import Record

Json = dict[str, Any]
Pool = tuple[str, str]
"""A cluster's name and its pool's; of its scheduler: an empty one."""
_SHOWN = 5
_CREDENTIAL = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True)
class Pod:
    """A pod that may go on."""

    name: str
    uid: str
    pool: Pool
    dask_name: str
    seen_at: float = field(compare=False)


class Observer:
    """Pods, counters and the Lease. `wanted`: of each pool, how many pods; more than that are never right."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.pods: dict[str, Pod] = {}
        self.wanted: dict[Pool, int] = {}
        self.released: set[str] = set()  # uids of pods that somebody other than the operator deleted
        self.holder = ""
        self.lease_seconds = 0
        self.held_since = 0.0
        self._counted: dict[Pool, float] = {}
        self._wrong: list[str] = []

    def see_pod(self, event: Json) -> None:
        """Take in one event of the watch of pods."""
        metadata = event["object"]["metadata"]
        uid, labels = metadata["uid"], metadata["labels"]
        if event["type"] == "DELETED" or "deletionTimestamp" in metadata:
            gone = self.pods.pop(uid, None)
            if gone is not None and uid not in self.released:
                self._wrong.append(f"{gone.name} was deleted")
        elif uid not in self.pods and uid not in self.released:
            pool = labels[LABEL_CLUSTER], labels.get(LABEL_POOL, "")
            dask_name = metadata.get("annotations", {}).get(ANNOTATION_DASK_NAME, "")
            self.pods[uid] = Pod(metadata["name"], uid, pool, dask_name, self._clock())
            self._is_one_too_many(self.pods[uid])

    def _is_one_too_many(self, new: Pod) -> None:
        alike = [pod for pod in self.pods.values() if pod.pool == new.pool]
        if len(alike) > self.wanted.get(new.pool, 0):
            self._wrong.append(f"{new.name} is one too many: {sorted(pod.name for pod in alike)}")
        if new.dask_name and sum(pod.dask_name == new.dask_name for pod in alike) > 1:
            self._wrong.append(f"{new.name} is the second with the Dask name {new.dask_name}")

    def see_cluster(self, event: Json) -> None:
        """Take in one event of the watch of clusters."""
        body = event["object"]
        for pool in body.get("status", {}).get("pools", ()):
            key = body["metadata"]["name"], pool["name"]
            seconds, before = pool.get("gpuSecondsHeld", 0.0), self._counted.get(key, 0.0)
            if seconds < before:
                self._wrong.append(f"the GPU-seconds of {'/'.join(key)} went back from {before} to {seconds}")
            self._counted[key] = seconds

    def see_lease(self, record: Record) -> None:
        """Take in what the Lease says."""
        if record.holder != self.holder:
            self.holder, self.held_since = record.holder, self._clock()
        self.lease_seconds = record.seconds if record.holder else self.lease_seconds

    def of(self, pool: Pool) -> list[Pod]:
        """The pods of one pool."""
        return [pod for pod in self.pods.values() if pod.pool == pool]

    @property
    def complete(self) -> bool:
        """Whether every pool has what is wanted."""
        there = Counter(pod.pool for pod in self.pods.values())
        return all(there[pool] == count for pool, count in self.wanted.items())

    @property
    def gpu_seconds(self) -> float:
        """All that statuses have counted."""
        return sum(self._counted.values())

    def check(self) -> None:
        """Nothing was seen that must not be.

        Raises:
            AssertionError: something was; the message names it.
        """
        shown = "; ".join(self._wrong[:_SHOWN])
        assert not self._wrong, f"{len(self._wrong)} things that must not be: {shown}"


@dataclass(frozen=True)
class Request:
    """One request. `credential`: whose; `resource` with its subresource, as `pods/status`; `name` may be empty."""

    credential: str
    verb: str
    resource: str
    name: str


class Audit:
    """The API server's audit log, from one place in it on: which operator asked for what."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def mark(self) -> int:
        """Where it ends now."""
        return self._path.stat().st_size

    def since(self, mark: int) -> list[Request]:
        """What was answered since then; a watch when it began."""
        with self._path.open("rb") as file:
            file.seek(mark)
            text = file.read()
        return [_request(json.loads(line)) for line in text[: text.rfind(b"\n") + 1].splitlines()]


def extra(requests: Iterable[Request], credential: str) -> list[Request]:
    """What this operator asked for beside its watches and the Lease."""
    return [
        request
        for request in requests
        if request.credential == credential and request.verb != "watch" and request.resource != "leases"
    ]


def _request(event: dict[str, Any]) -> Request:
    what = event.get("objectRef", {})
    resource = "/".join(part for part in (what.get("resource", ""), what.get("subresource", "")) if part)
    credentials = event["user"].get("extra", {}).get(_CREDENTIAL, [""])
    name = what.get("name", "")
    return Request(credentials[0], event["verb"], resource or event["requestURI"], name)
