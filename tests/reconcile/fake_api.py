"""An API server of a few objects, in memory: creations, deletions with finalizers, and watches that tell of them."""

from __future__ import annotations

from gpudask.api import Json

import copy
import itertools
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

from gpudask.api.resource import Identity
from gpudask.clients.clock import Clock
from gpudask.clients.errors import ApiError
from gpudask.clients.events import EventRecorder
from gpudask.clients.flow_control import FairQueue
from gpudask.clients.kubernetes import Kubernetes
from gpudask.clients.reflector import Reflector
from gpudask.planning.observed.parser import parse_pod
from gpudask.api.status import iso
from gpudask.clients.reflector import Caches
from gpudask.reconcile.context import Context, merge_pods
from gpudask.reconcile.drift_repair import observe_owned
from gpudask.mirror.sync import Mirror
from gpudask.reconcile.reconciler import Reconciler
from gpudask.reconcile.preload_configmaps import Preloads, observe_shared
from gpudask.reconcile.loop import Registry
from gpudask.reconcile.records.writer import ClusterRecord
from gpudask.reconcile.resource_copy import ResourceCopy
from gpudask.reconcile.drift_repair import KINDS
from tests.planning.builders import NOW


class FakeApi(Kubernetes):
    """Objects by path. `asked`: the requests, as `POST /api/v1/...`. `finalizers`: what new pods get from others.

    `now`: what it stamps objects with. `answered`: called after each request. `refuses_old`: whether a status is
    refused that is not for the version that is there.
    """

    def __init__(self) -> None:
        self._statuses = FairQueue(1, 1)
        self._versions = itertools.count(10)
        self.objects: dict[str, Json] = {}
        self.asked: list[str] = []
        self.finalizers: list[str] = []
        self.now: Callable[[], float] = lambda: NOW
        self.answered: Callable[[], None] = lambda: None
        self.refuses_old = False

    def put(self, path: str, body: Json) -> Json:
        """An object as it is from now on."""
        body = copy.deepcopy(body)
        version = str(next(self._versions))
        body["metadata"] = {"uid": f"uid-{version}"} | body["metadata"] | {"resourceVersion": version}
        self.objects[path] = body
        return copy.deepcopy(body)

    async def request(self, method: str, path: str, *, query: Any = None, body: Any = None, **_: Any) -> Json:
        self.asked.append(f"{method} {path}")
        self.answered()
        if method == "POST":
            return self._post(path, body, dry_run="dryRun" in (query or {}))
        if method == "PATCH" and path.endswith("/status"):
            there = self._there(path.removesuffix("/status"))
            values = {operation["path"]: operation["value"] for operation in body}
            if self.refuses_old and values["/metadata/resourceVersion"] != there["metadata"]["resourceVersion"]:
                raise ApiError(HTTPStatus.CONFLICT, "Conflict", "the object has been modified", path)
            return self.put(path.removesuffix("/status"), there | {"status": values["/status"]})
        if method == "PATCH" and query and query.get("force"):
            return self.put(path, self.objects.get(path, {}) | body)
        there = self._there(path)
        if method == "PATCH":
            return self.put(path, there)
        return self._delete(path, there) if method == "DELETE" else copy.deepcopy(there)

    def _there(self, path: str) -> Json:
        if path not in self.objects:
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", "there is none", path)
        return self.objects[path]

    def _post(self, path: str, body: Json, *, dry_run: bool) -> Json:
        path = f"{path}/{body['metadata']['name']}"
        if path in self.objects:
            raise ApiError(HTTPStatus.CONFLICT, "AlreadyExists", f"{path} exists", f"POST {path}")
        made = {"finalizers": list(self.finalizers)} if self.finalizers and body["kind"] == "Pod" else {}
        made["creationTimestamp"] = iso(self.now(), to="seconds")
        return body if dry_run else self.put(path, body | {"metadata": body["metadata"] | made})

    def _delete(self, path: str, there: Json) -> Json:
        """A pod that is on no node has no grace period: it is gone, or waits for its finalizers alone."""
        there["metadata"] |= {"deletionTimestamp": iso(self.now(), to="seconds"), "deletionGracePeriodSeconds": 0}
        left = self.put(path, there)
        if not there["metadata"].get("finalizers"):
            del self.objects[path]
        return left


class Bench:
    """One cluster's passes on a fake API server, one after another in simulated time, and the pods' cache.

    `now`: what passes. `wall_jump`, `server_jump`: by how much somebody set this machine's clock, the API server's.
    """

    def __init__(self, api: FakeApi, cluster: Json) -> None:
        self.api, self.now = api, NOW
        self.wall_jump = self.server_jump = 0.0
        self.clock = Clock(monotonic=lambda: self.now, wall=lambda: self.now + self.wall_jump)
        api.now = lambda: self.now + self.server_jump
        api.answered = lambda: self.clock.response_received(formatdate(api.now(), usegmt=True), self.now)
        self.registry = Registry()
        self.woken = 0
        pods = self._caches("pods", parse_pod, merge=merge_pods(self.clock), on_gone=self._pod_gone)
        self.pods: Reflector[Any] = pods.reflectors[0]
        schedulers: Any = None  # none of the pods has an address
        self.context = Context(
            api=api,
            schedulers=schedulers,
            events=EventRecorder(api, "test"),
            pods=pods,
            dependents={kind: self._caches(plural, observe_owned(kind)) for kind, (_, plural) in KINDS.items()},
            preloads=Preloads(api, self._caches("configmaps", observe_shared), {"x.py": b""}, self.clock.now),
            key=b"key",
            clock=self.clock.now,
            server_ahead=self.clock.server_ahead,
            wall_ahead=self.clock.wall_ahead,
            random=lambda: 0.5,
            recheck_seconds=0.01,
        )
        metadata = cluster["metadata"]
        self.path = f"/api/v1/namespaces/{metadata['namespace']}/pods"
        name = f"/apis/gpudask.dev/v1alpha1/namespaces/{metadata['namespace']}/gpudaskclusters/{metadata['name']}"
        self.resource = name
        api.put(name, cluster)
        self._copy = ResourceCopy(self.context, api.objects[name])
        record = ClusterRecord(self.context, Identity(metadata["name"], metadata["namespace"], metadata["uid"]), "")
        self.passes = Reconciler(self.context, self._copy, Mirror(self.context, None), self, record)

    def _caches(self, plural: str, reduce: Any, **rest: Any) -> Caches:
        reflector: Reflector[Any] = Reflector(
            self.api,
            f"/api/v1/{plural}",
            label="",
            reduce=reduce,
            on_change=self.registry.owned_changed,
            clock=self.clock.now,
            **rest,
        )
        return Caches([reflector])

    def _pod_gone(self, pod: Any, _since: float) -> None:
        self.passes.pod_gone(pod, self.clock.now())

    def wake(self) -> None:
        self.woken += 1

    def demand_changed(self, *, urgent: bool = True) -> None:  # noqa: ARG002 - the loop's form
        self.woken += 1

    def resource_changed(self, body: Json) -> None:
        self._copy.update(body)

    def edit(self, spec: Json) -> None:
        """What a person's edit does."""
        there = self.api.objects[self.resource]
        generation = there["metadata"]["generation"] + 1
        body = there | {"spec": spec, "metadata": there["metadata"] | {"generation": generation}}
        self._copy.update(self.api.put(self.resource, body))
        self.passes.edited()

    def watch(self) -> None:
        """What a watch would tell: the pods as they are."""
        for path, body in self.api.objects.items():
            if "/pods/" in path:
                self.pods.upsert(body)
        self.pods._known_at = self.clock.now()

    async def run(self, seconds: float, *, most: int = 1000) -> None:
        """Make passes for so many seconds, each when the one before asks for it."""
        end = self.now + seconds
        for _ in range(most):
            self.woken = 0
            wait = await self.passes.reconcile()
            self.pods._known_at = self.clock.now()  # the watch is silent: nothing has changed
            self.now += 0.02 if self.woken else wait  # a pass and its requests take a moment
            if self.now >= end:
                self.now = end
                return
        raise AssertionError(f"{most} passes in {seconds - (end - self.now):.1f} s: {self.api.asked[-6:]}")

    def count(self, method: str, what: str = "/pods") -> int:
        return sum(1 for asked in self.api.asked if asked.startswith(method) and what in asked)

    def names(self) -> list[str]:
        return sorted(path.rpartition("/")[2] for path in self.api.objects if path.startswith(self.path))

    def condition(self, kind: str) -> str:
        items = self.api.objects[self.resource].get("status", {}).get("conditions", ())
        return next((f"{c['status']} {c['reason']}: {c.get('message', '')}" for c in items if c["type"] == kind), "")
