"""Nodes: their pods start, run their programs, and end by themselves or by what happens to them."""

from __future__ import annotations

from collections import defaultdict
from functools import partial

from gpudask.api import Json
from gpudask.api.resource import LABEL_DASK_COMPONENT, LABEL_JOB
from gpudask.api.status import iso
from tests.orders.api_server import PODS, Event, SlowApiServer, is_finished, wall
from tests.reconcile.fake_kubelet import exited, running
from tests.virtual_time import now

_KILLED, _TERMINATED = 137, 143  # exit codes


class Node:
    """Runs pods. What of `runs` has a second uid ran twice: pods by their job's uid and their own name."""

    def __init__(self, server: SlowApiServer) -> None:
        self._server = server
        self._chance = server.chance
        self._addresses = iter(f"10.0.{number // 250}.{number % 250 + 1}" for number in range(60_000))
        self._lost: set[str] = set()  # uids of pods whose node is
        self.runs: dict[tuple[str, str], set[str]] = defaultdict(set)
        server.listeners.append(self._see)

    def _see(self, event: Event) -> None:
        if event.body.get("kind") == "Pod" and event.type != "DELETED":
            if event.type == "ADDED":
                self._check_schedulers(event)
            seconds = self._chance.choice((0.01, 0.3, 1.0, 3.0))
            self._server.later(seconds, partial(self._work_on, event.path, event.body["metadata"]["uid"]))

    def _check_schedulers(self, made: Event) -> None:
        """A cluster has one scheduler pod, or others that are being deleted, or have ended."""
        key = _scheduler_of(made.body)
        live = [
            path
            for path, body in self._server.objects.items()
            if path.startswith(PODS) and key and _scheduler_of(body) == key and not is_finished(body)
            if "deletionTimestamp" not in body["metadata"]
        ]
        if len(live) > 1:
            self._server.wrong.append(f"{now():.3f}: a cluster has two scheduler pods: {live}")

    def _work_on(self, path: str, uid: str) -> None:
        body = self._server.there(path, uid)
        if body is None or uid in self._lost:
            return
        if "deletionTimestamp" in body["metadata"]:
            if not body["metadata"].get("finalizers"):
                self._server.remove(path)
            elif body["spec"].get("nodeName"):
                self._exit(path, uid, _TERMINATED)
        elif body["spec"].get("activeDeadlineSeconds") == 1 and not is_finished(body):
            self._server.put(path, body | {"status": {"phase": "Failed", "reason": "DeadlineExceeded"}})
        elif not body["spec"].get("schedulingGates") and not body["spec"].get("nodeName"):
            self._start(path, body)

    def _start(self, path: str, body: Json) -> None:
        status = running(next(self._addresses))
        container = status["containerStatuses"][0] | {"name": body["spec"]["containers"][0]["name"]}
        stamp = iso(wall(), to="seconds")
        status["containerStatuses"] = [container | {"state": {"running": {"startedAt": stamp}}}]
        status["conditions"] = [each | {"lastTransitionTime": stamp} for each in status["conditions"]]
        self._server.put(path, body | {"spec": body["spec"] | {"nodeName": "node-1"}, "status": status})
        metadata = body["metadata"]
        if LABEL_JOB not in metadata.get("labels", {}):
            return
        self._server.note(f"  {metadata['name']} runs")
        self.runs[metadata["ownerReferences"][0]["uid"], metadata["name"]].add(metadata["uid"])
        if self._chance.random() < 0.8:
            code = self._chance.choice((0, 0, 1, 1, 3))
            self._server.later(self._chance.uniform(0.0, 20.0), partial(self._exit, path, metadata["uid"], code))

    def _exit(self, path: str, uid: str, code: int) -> None:
        body = self._server.there(path, uid)
        if body is None or is_finished(body) or uid in self._lost:
            return
        status = _ended(body, code)
        self._server.note(f"  {body['metadata']['name']} exits with {code}")
        self._server.put(path, body | {"status": status})

    def restart(self, path: str) -> None:
        """A pod's container exits, and is started again where the pod asks for that."""
        body = self._server.objects[path]
        code = self._chance.choice((0, 1, 137))
        if body["spec"].get("restartPolicy") != "Always":
            self._exit(path, body["metadata"]["uid"], code)
            return
        self._server.note(f"the container of {body['metadata']['name']} exits with {code}, and starts again")
        container = body["status"]["containerStatuses"][0]
        state = {
            "state": {"running": {"startedAt": iso(wall(), to="seconds")}},
            "lastState": _ended(body, code)["containerStatuses"][0]["state"],
            "restartCount": container["restartCount"] + 1,
        }
        self._server.put(path, body | {"status": body["status"] | {"containerStatuses": [container | state]}})

    def evict(self, path: str) -> None:
        """The kubelet ends a pod for its node's sake."""
        body = self._server.objects[path]
        self._server.note(f"{body['metadata']['name']} is evicted")
        status = _ended(body, _KILLED) | {"phase": "Failed", "reason": "Evicted"}
        status["message"] = "The node was low on resource: memory."
        status["conditions"] = [*status["conditions"], _disruption("TerminationByKubelet")]
        self._server.put(path, body | {"status": status})

    def lose(self, path: str) -> None:
        """A pod's node is lost: later Kubernetes deletes the pod, and later still it is gone."""
        body = self._server.objects[path]
        self._server.note(f"the node of {body['metadata']['name']} is lost")
        uid = body["metadata"]["uid"]
        self._lost.add(uid)
        self._server.put(path, body | {"status": _not_ready(body["status"])})
        seconds = self._chance.uniform(0.0, 20.0)
        self._server.later(seconds, partial(self._taint, path, uid))
        self._server.later(seconds + self._chance.uniform(0.0, 60.0), partial(self._collect, path, uid))

    def _taint(self, path: str, uid: str) -> None:
        if (body := self._server.there(path, uid)) is not None:
            conditions = [*body["status"]["conditions"], _disruption("DeletionByTaintManager")]
            self._server.put(path, body | {"status": body["status"] | {"conditions": conditions}})
            self._server.delete(path)

    def _collect(self, path: str, uid: str) -> None:
        """The pod garbage collector deletes a pod of a node that is gone by force."""
        self._lost.discard(uid)
        if (body := self._server.there(path, uid)) is not None:
            self._server.put(path, body | {"status": body["status"] | {"phase": "Failed"}})
            self._work_on(path, uid)


def _ended(body: Json, code: int) -> Json:
    """The status of a pod whose program exits now."""
    status = exited(body, code)
    times = {"startedAt": iso(wall(), to="seconds"), "finishedAt": iso(wall(), to="seconds")}
    status["containerStatuses"][0]["state"]["terminated"] |= times
    return _not_ready(body["status"]) | status


def _not_ready(status: Json) -> Json:
    changed = {"status": "False", "lastTransitionTime": iso(wall(), to="seconds")}
    conditions = [each | (changed if each["type"] == "Ready" else {}) for each in status["conditions"]]
    return status | {"conditions": conditions}


def _disruption(reason: str) -> Json:
    stamp = iso(wall(), to="seconds")
    return {"type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": stamp}


def _scheduler_of(pod: Json) -> str:
    """The uid of the cluster whose scheduler runs in a pod; empty: none does."""
    metadata = pod["metadata"]
    is_scheduler = metadata.get("labels", {}).get(LABEL_DASK_COMPONENT) == "scheduler"
    return metadata["ownerReferences"][0]["uid"] if is_scheduler else ""
