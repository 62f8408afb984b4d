"""An observer of pods: how often each job's program ran, and when its workers were gone. It asks nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, defaultdict
from contextlib import aclosing

from gpudask.api import Json
from gpudask.api.resource import LABEL_CLUSTER, LABEL_JOB, LABEL_POOL
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from tests.chaos_jobs.course import Course, Release
from tests.chaos_jobs.jobs import SHARED


class Observer:
    """`ran`: uids of the pods that ran, by job. `shared_names`: pods that ran under a name under which one had run."""

    def __init__(self, api: Kubernetes, namespace: str, course: Course) -> None:
        self._api = api
        self._course = course
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self.ran: dict[str, set[str]] = defaultdict(set)
        self._names: dict[str, set[str]] = defaultdict(set)
        self._ended_at: dict[str, dict[str, float]] = defaultdict(dict)  # job -> uid of the runner -> when
        self._workers: dict[str, dict[str, str]] = defaultdict(dict)  # job -> uid of a worker -> of the runner then
        self._released: dict[tuple[str, str], Release] = {}
        self._deleting: set[str] = set()  # uids of workers
        self._current: dict[str, str] = {}  # job -> uid of its runner

    @property
    def runs(self) -> dict[str, int]:
        """How often each job's program ran."""
        return Counter({job: len(uids) for job, uids in self.ran.items()})

    @property
    def shared_names(self) -> list[str]:
        """Names under which more than one pod ran: the same attempt twice."""
        return [name for name, uids in self._names.items() if len(uids) > 1]

    @property
    def releases(self) -> list[Release]:
        """From the end of each program to that of the last worker which its own cluster had."""
        return list(self._released.values())

    async def run(self) -> None:
        """Watch for ever."""
        while True:
            with contextlib.suppress(ApiError):
                page = await self._api.request("GET", self._path)
                for body in page["items"]:
                    self._see(body)
                query = {"watch": "true", "resourceVersion": page["metadata"]["resourceVersion"]}
                async with aclosing(self._api.stream(self._path, query=query)) as events:
                    async for event in events:
                        if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                            self._see(event["object"], gone=event["type"] == "DELETED")
            await asyncio.sleep(0.1)

    def _see(self, body: Json, *, gone: bool = False) -> None:
        meta = body["metadata"]
        labels = meta.get("labels", {})
        if job := labels.get(LABEL_JOB):
            self._see_runner(job, body, gone=gone)
        elif LABEL_POOL in labels and labels.get(LABEL_CLUSTER) != SHARED:
            self._see_worker(labels[LABEL_CLUSTER], meta, gone=gone)

    def _see_worker(self, job: str, meta: Json, *, gone: bool) -> None:
        name, uid = meta["name"], meta["uid"]
        if not gone:
            if uid not in self._workers[job]:
                self._workers[job][uid] = self._current.get(job, "")
                self._course.note(job, f"seen: {name} is there")
            if "deletionTimestamp" in meta and uid not in self._deleting:
                self._deleting.add(uid)
                self._course.note(job, f"seen: {name} is being deleted")
            return
        self._course.note(job, f"seen: {name} is gone")
        runner = self._workers[job].pop(uid, "")
        if (ended := self._ended_at[job].get(runner)) is not None:
            self._released[job, runner] = Release(job, runner, ended, time.time())

    def _see_runner(self, job: str, body: Json, *, gone: bool) -> None:
        name, uid, status = body["metadata"]["name"], body["metadata"]["uid"], body.get("status", {})
        if uid not in self._ended_at[job]:
            self._current[job] = uid
        states = [item.get("state", {}) for item in status.get("containerStatuses", ())]
        if any("running" in state or "terminated" in state for state in states):
            self.ran[job].add(uid)
            self._names[name].add(uid)
        has_ended = status.get("phase") in ("Succeeded", "Failed") or any("terminated" in state for state in states)
        if (has_ended or gone or "deletionTimestamp" in body["metadata"]) and uid not in self._ended_at[job]:
            self._ended_at[job][uid] = time.time()
            self._course.note(job, f"seen: {name} has ended")
