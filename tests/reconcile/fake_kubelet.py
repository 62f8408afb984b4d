"""Plays the node: pods get a node, start and end, and those that run Dask are known to its scheduler.

The runners of jobs run until they are in `exits`, by name: then they end with this code. Those at a gate do not start.
"""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import logging
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from gpudask.api.resource import ANNOTATION_DASK_NAME, LABEL_CLUSTER, LABEL_JOB, LABEL_POOL
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from tests.reconcile.fake_dask import FakeScheduler

_LOG = logging.getLogger(__name__)


class FakeKubelet:
    """`idle`: pools whose pods it leaves Pending; `full`: pools that find no node. Schedulers by cluster name."""

    def __init__(self, api: Kubernetes, namespace: str) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._task: asyncio.Task[None] | None = None
        self._work: set[asyncio.Task[None]] = set()
        self._started: set[str] = set()
        self._ended: set[str] = set()
        self._known: dict[str, Json] = {}
        self._homes: dict[str, tuple[str, str, str]] = {}
        self.idle: set[str] = set()
        self.full: set[str] = set()
        self.keeps: set[str] = set()
        self.schedulers: dict[str, FakeScheduler] = {}
        self.exits: dict[str, int] = {}
        self.runs: list[tuple[str, str]] = []  # names and uids of the runners that ran
        self._exited: set[str] = set()

    def start(self) -> None:
        """Begin to watch."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End, and the schedulers too."""
        for task in [self._task, *self._work]:
            if task is not None:
                task.cancel()
        await asyncio.gather(*(t for t in [self._task, *self._work] if t), return_exceptions=True)
        await asyncio.gather(*(scheduler.stop() for scheduler in self.schedulers.values()))

    def look_again(self) -> None:
        """Take up the pods that were left alone."""
        for body in list(self._known.values()):
            self._see(body)

    async def _run(self) -> None:
        while True:
            try:
                page = await self._api.request("GET", self._path)
                present = {item["metadata"]["uid"] for item in page["items"]}
                for uid in set(self._known) - present:
                    self._gone(uid)
                for item in page["items"]:
                    self._see(item)
                query = {"watch": "true", "resourceVersion": page["metadata"]["resourceVersion"]}
                async with aclosing(self._api.stream(self._path, query=query)) as events:
                    async for event in events:
                        if event["type"] == "DELETED":
                            self._gone(event["object"]["metadata"]["uid"])
                        elif event["type"] in ("ADDED", "MODIFIED"):
                            self._see(event["object"])
            except ApiError as error:
                _LOG.info("the kubelet lost its watch: %s", error)
                await asyncio.sleep(0.2)

    def _see(self, body: Json) -> None:
        meta = body["metadata"]
        uid, labels = meta["uid"], meta.get("labels", {})
        self._known[uid] = body
        pool = labels.get(LABEL_POOL, "")
        if "deletionTimestamp" in meta:
            if uid not in self._ended and meta["name"] not in self.keeps:
                self._ended.add(uid)
                self._do(self._end(body))
        elif LABEL_JOB in labels:
            self._see_runner(body)
        elif LABEL_CLUSTER in labels and pool not in self.idle and uid not in self._started:
            if pool in self.full:
                self._do(self._refuse(body))
                return
            self._started.add(uid)
            self._do(self._begin(body, labels[LABEL_CLUSTER], pool))

    def _see_runner(self, body: Json) -> None:
        name, uid = body["metadata"]["name"], body["metadata"]["uid"]
        if uid not in self._started and not body["spec"].get("schedulingGates"):
            self._started.add(uid)
            self.runs.append((name, uid))
            self._do(self._run_program(body))
        elif name in self.exits and uid not in self._exited and body.get("status", {}).get("phase") == "Running":
            self._exited.add(uid)
            self._do(self._status(name, exited(body, self.exits[name])))

    async def _run_program(self, body: Json) -> None:
        name = body["metadata"]["name"]
        try:
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
            binding["target"] = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
            await self._api.request("POST", f"{self._path}/{name}/binding", body=binding)
            status = running("127.0.0.2")
            status["containerStatuses"][0]["name"] = body["spec"]["containers"][0]["name"]
            await self._status(name, status)
        except ApiError as error:
            _LOG.info("the kubelet could not run %s: %s", name, error)

    def _gone(self, uid: str) -> None:
        self._known.pop(uid, None)
        cluster, dask_name, _ = self._homes.pop(uid, ("", "", ""))
        if cluster in self.schedulers:
            self._do(self.schedulers[cluster].leave(dask_name))

    def _do(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _begin(self, body: Json, cluster: str, pool: str) -> None:
        name, uid = body["metadata"]["name"], body["metadata"]["uid"]
        try:
            if not body["spec"].get("nodeName"):
                binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
                binding["target"] = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
                await self._api.request("POST", f"{self._path}/{name}/binding", body=binding)
            address = "127.0.0.1" if pool else await self._scheduler(cluster)
            await self._status(name, running(address))
            if pool:
                dask_name = body["metadata"]["annotations"][ANNOTATION_DASK_NAME]
                self._homes[uid] = (cluster, dask_name, pool)
                if cluster in self.schedulers:
                    await self.schedulers[cluster].register(dask_name, pool)
        except ApiError as error:
            _LOG.info("the kubelet could not start %s: %s", name, error)

    async def _scheduler(self, cluster: str) -> str:
        old = self.schedulers.pop(cluster, None)
        fresh = FakeScheduler()
        if old is not None:
            await old.stop()
        fresh.pods = {dask_name: pool for home, dask_name, pool in self._homes.values() if home == cluster}
        self.schedulers[cluster] = fresh  # before the first await: workers that start meanwhile register here
        await fresh.start()
        return fresh.address

    async def _refuse(self, body: Json) -> None:
        conditions = body.get("status", {}).get("conditions", [])
        if any(item.get("reason") == "Unschedulable" for item in conditions):
            return
        said = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
        row = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
        await self._status(body["metadata"]["name"], {"conditions": [row]})

    async def _end(self, body: Json) -> None:
        try:
            await self._api.request(
                "DELETE",
                f"{self._path}/{body['metadata']['name']}",
                body={"gracePeriodSeconds": 0, "preconditions": {"uid": body["metadata"]["uid"]}},
            )
        except ApiError as error:
            _LOG.info("the kubelet could not end a pod: %s", error)

    async def _status(self, name: str, status: Json) -> None:
        await self._api.request(
            "PATCH",
            f"{self._path}/{name}/status",
            body={"status": status},
            content_type="application/merge-patch+json",
        )


def running(address: str) -> Json:
    """The status of a pod that runs and is ready."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": kind, "status": "True"} for kind in ("PodScheduled", "ContainersReady", "Ready")],
        "containerStatuses": [
            {
                "name": "dask",
                "ready": True,
                "restartCount": 0,
                "image": "i",
                "imageID": "i",
                "state": {"running": {"startedAt": now}},
            }
        ],
    }


def exited(body: Json, code: int) -> Json:
    """The status of a runner's pod whose program exited with this code."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    ended = {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": now, "finishedAt": now}
    container = body["status"]["containerStatuses"][0] | {"ready": False, "state": {"terminated": ended}}
    ended["message"] = f"the last line of {body['metadata']['name']}"
    return {"phase": "Failed" if code else "Succeeded", "containerStatuses": [container]}
