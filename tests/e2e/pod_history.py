"""History of a namespace's pods, change by change: end states cannot show a pod too many."""

from __future__ import annotations

from gpudask.api import Json

import contextlib
import json
import subprocess
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Self

from tests.eventually import eventually
from tests.kubectl import Kubectl

_RETRY_SECONDS = 0.2
_POOL = "gpudask.dev/pool"


@dataclass(frozen=True)
class Change:
    """A watch event, and when it came (seconds of `time.monotonic`)."""

    at: float
    kind: str
    pod: Json


class PodHistory:
    """A watch of all pods of a namespace while the context is open. It goes on where it was after a lost connection.

    A restarted API server refuses to go on from any version before its start (410). Then the pods are listed anew, and
    `settle` looks into the namespace's events for a pod that came and went in between.
    """

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl
        self._changes: list[Change] = []
        self._lost_its_place = False
        self._ended = threading.Event()
        self._watch: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._list_anew()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._watch is not None:
            self._watch.kill()
        self._thread.join()

    def settle(self) -> None:
        """Wait until everything that has happened so far is in it."""
        eventually(
            lambda: self._versions(self._current()) == self._versions(self._list()["items"]), "the watch has caught up"
        )
        if self._lost_its_place:
            unseen = self._named_by_events() - {change.pod["metadata"]["uid"] for change in self._changes}
            assert not unseen, f"pods that came and went while nobody watched: {unseen}"

    def most(self, pool: str) -> int:
        """The most pods of a pool at any one time that nobody had asked to end."""
        live: set[str] = set()
        most = 0
        for change in self._of(pool):
            leaves = change.kind == "DELETED" or "deletionTimestamp" in change.pod["metadata"]
            (live.discard if leaves else live.add)(change.pod["metadata"]["uid"])
            most = max(most, len(live))
        return most

    def made(self, pool: str) -> list[str]:
        """The names of all pods that a pool ever had, one entry for each pod."""
        return sorted({c.pod["metadata"]["uid"]: c.pod["metadata"]["name"] for c in self._of(pool)}.values())

    def asked_to_end(self, pool: str) -> set[str]:
        """The names of the pods whose deletion was asked for."""
        return {
            change.pod["metadata"]["name"]
            for change in self._of(pool)
            if change.kind == "DELETED" or "deletionTimestamp" in change.pod["metadata"]
        }

    def __str__(self) -> str:
        """Every creation and deletion, for a person who looks into a failure."""
        begun = self._changes[0].at if self._changes else 0.0
        lines = []
        for change in list(self._changes):
            ending = " ends" if "deletionTimestamp" in change.pod["metadata"] else ""
            phase = change.pod.get("status", {}).get("phase")
            lines.append(f"{change.at - begun:7.2f} s {change.kind} {change.pod['metadata']['name']} {phase}{ending}")
        return "\n".join(lines)

    def _of(self, pool: str) -> list[Change]:
        return [c for c in list(self._changes) if c.pod["metadata"].get("labels", {}).get(_POOL, "") == pool]

    def _current(self) -> list[Json]:
        """The pods that there are, by the watch."""
        pods: dict[str, Json] = {}
        for change in list(self._changes):
            if change.kind == "DELETED":
                pods.pop(change.pod["metadata"]["uid"], None)
            else:
                pods[change.pod["metadata"]["uid"]] = change.pod
        return list(pods.values())

    @staticmethod
    def _versions(pods: list[Json]) -> dict[str, str]:
        return {pod["metadata"]["uid"]: pod["metadata"]["resourceVersion"] for pod in pods}

    def _list(self, what: str = "pods") -> Json:
        return dict(json.loads(self._kubectl("get", "--raw", self._path(what)).stdout))

    def _list_anew(self) -> None:
        listed = self._list()
        self._version = listed["metadata"]["resourceVersion"]
        kept = {pod["metadata"]["uid"] for pod in listed["items"]}
        gone = [pod for pod in self._current() if pod["metadata"]["uid"] not in kept]
        self._changes += [Change(time.monotonic(), "DELETED", pod) for pod in gone]
        self._changes += [Change(time.monotonic(), "ADDED", pod) for pod in listed["items"]]

    def _named_by_events(self) -> set[str]:
        """The uids of the pods that the scheduler or a kubelet said something of since the namespace was made."""
        named = [event["involvedObject"] for event in self._list("events")["items"]]
        return {it["uid"] for it in named if it["kind"] == "Pod" and "uid" in it}

    def _path(self, what: str = "pods") -> str:
        return f"/api/v1/namespaces/{self._kubectl.namespace}/{what}"

    def _follow(self) -> None:
        while not self._ended.is_set():
            path = f"{self._path()}?watch=true&allowWatchBookmarks=true&resourceVersion={self._version}"
            self._watch = self._kubectl.start("get", "--raw", path)
            if self._ended.is_set():
                self._watch.kill()
            assert self._watch.stdout is not None
            with contextlib.suppress(ValueError):  # a line that was cut off with the connection
                for line in self._watch.stdout:
                    self._take(json.loads(line))
            self._watch.kill()
            self._watch.wait()
            self._ended.wait(_RETRY_SECONDS)

    def _take(self, event: Json) -> None:
        if event["type"] == "ERROR":
            assert event["object"]["code"] == HTTPStatus.GONE, event
            self._lost_its_place = True
            self._list_anew()
            return
        self._version = event["object"]["metadata"]["resourceVersion"]
        if event["type"] != "BOOKMARK":
            self._changes.append(Change(time.monotonic(), event["type"], event["object"]))
