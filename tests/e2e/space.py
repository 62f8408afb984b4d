"""A test's own namespace, and the clusters in it."""

from __future__ import annotations

from gpudask.api import Json

import itertools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import gpudask_e2e
from distributed import Client

from gpudask.api.resource import API_VERSION, PLURAL
from local.errors import LocalClusterError
from tests.e2e.platform import Platform
from tests.eventually import eventually
from tests.kubectl import Kubectl

# What is asked again and again is not asked through kubectl: starting it costs more than the answer, on a machine where
# the pods need the time.
VERSIONS = {
    **dict.fromkeys(("pods", "services", "configmaps", "secrets", "resourcequotas"), "v1"),
    **dict.fromkeys((PLURAL, "gpudaskjobs", "gpudaskcronjobs"), API_VERSION),
    **dict.fromkeys(("daskclusters", "daskworkergroups", "daskjobs"), "kubernetes.dask.org/v1"),
    "deployments": "apps/v1",
    "events": "events.k8s.io/v1",
    "poddisruptionbudgets": "policy/v1",
}
_SHORT = {"gdc": PLURAL}
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Space:
    """A namespace on the real cluster."""

    platform: Platform
    kubectl: Kubectl

    @classmethod
    @contextmanager
    def opened(cls, platform: Platform, *, pod_security: str = "restricted") -> Iterator[Space]:
        """A new namespace; it goes afterwards, and its GPUs are free for the next. Other pods may still be ending.

        `pod_security`: the level that is enforced there. The operator's pods pass the strictest.
        """
        namespace = f"e2e-{os.getpid()}-{next(_numbers)}"
        platform.create_namespace(namespace, pod_security=pod_security)
        room = cls(platform, platform.kubectl.inside(namespace))
        try:
            yield room
        finally:
            room.kubectl("delete", "gdc", "--all", "--wait=true", "--timeout=120s")
            room.kubectl("delete", "pods", "--all", "--wait=false", "--grace-period=1")
            eventually(lambda: not any(map(_has_gpu, room.get("pods"))), "the test's GPUs are free", show=room.show)
            platform.kubectl("delete", "namespace", namespace, "--wait=false")

    def apply(self, manifest: Json) -> None:
        """Create or change an object."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def edit(self, cluster: str, *operations: Json) -> None:
        """Change a cluster by JSON patch operations."""
        self.kubectl("patch", "gdc", cluster, "--type=json", "-p", json.dumps(operations))

    def get(self, kind: str, *, labels: str = "", fields: str = "") -> list[Json]:
        """The objects of a kind, or of several in kubectl's words, by a selector of labels or fields."""
        plural = _SHORT.get(kind, kind)
        if plural not in VERSIONS:
            selectors = (f"--selector={labels}", f"--field-selector={fields}")
            return list(json.loads(self.kubectl("get", kind, *selectors, "-o", "json").stdout)["items"])
        query = urlencode({"labelSelector": labels, "fieldSelector": fields})
        listed = self.platform.provider.get(f"{self._path(VERSIONS[plural])}/{plural}?{query}")
        return list(listed["items"]) if listed else []

    def find(self, kind: str, name: str) -> Json:
        """One object. An AssertionError where there is none."""
        (body,) = self.get(kind, fields=f"metadata.name={name}") or [None]
        assert body is not None, f"there is no {kind} {name}"
        return body

    def nodes(self) -> list[Json]:
        """The cluster's nodes."""
        listed = self.platform.provider.get("/api/v1/nodes")
        return list(listed["items"]) if listed else []

    def status(self, cluster: str) -> Json:
        """A cluster's status."""
        body = self.platform.provider.get(f"{self._path(API_VERSION)}/{PLURAL}/{cluster}")
        assert body is not None, f"there is no cluster {cluster}"
        return dict(body.get("status", {}))

    def condition(self, cluster: str, kind: str) -> Json:
        """One condition of a cluster."""
        return next((c for c in self.status(cluster).get("conditions", ()) if c["type"] == kind), {})

    def pool(self, cluster: str, pool: str) -> Json:
        """One pool's status."""
        return next((p for p in self.status(cluster).get("pools", ()) if p["name"] == pool), {})

    def pods(self, cluster: str, pool: str = "") -> list[Json]:
        """The worker pods of a pool, or without one the scheduler pods."""
        which = f"gpudask.dev/pool={pool}" if pool else "dask.org/component=scheduler"
        return self.get("pods", labels=f"gpudask.dev/cluster={cluster},{which}")

    def names(self, cluster: str, pool: str = "") -> set[str]:
        """The names of those pods that nobody asked to end."""
        return {
            pod["metadata"]["name"] for pod in self.pods(cluster, pool) if "deletionTimestamp" not in pod["metadata"]
        }

    def uids(self, cluster: str, pool: str = "") -> set[str]:
        """The uids of the same: a pod's successor may have its name."""
        return {
            pod["metadata"]["uid"] for pod in self.pods(cluster, pool) if "deletionTimestamp" not in pod["metadata"]
        }

    def containers(self) -> dict[str, str]:
        """Uid of each pod that has started -> its main container, which is another one after a restart."""
        return {
            pod["metadata"]["uid"]: status["containerID"]
            for pod in self.get("pods")
            for status in pod["status"].get("containerStatuses", ())[:1]
            if status.get("containerID")
        }

    def retiring(self, cluster: str, pool: str) -> set[str]:
        """The names of a pool's pods that the operator has asked to leave."""
        return {
            pod["metadata"]["name"]
            for pod in self.pods(cluster, pool)
            if "gpudask.dev/retire" in pod["metadata"]["annotations"]
        }

    def wait(self, check: Callable[[], Any], what: str, *, seconds: float = 120) -> Any:
        """Wait for a condition; when it does not come, show the clusters and pods as they are.

        What is asked through the API, not through kubectl, is asked again where it is not answered.
        """
        refused: list[str] = []

        def look() -> Any:
            try:
                return check()
            except LocalClusterError as error:
                refused[:] = [str(error)]
                return None

        return eventually(look, what, seconds=seconds, show=lambda: "\n".join([*refused, self.show()]))

    def wait_ready(self, cluster: str, *, seconds: float = 150) -> None:
        """Wait until the cluster is usable."""
        self.wait(
            lambda: self.condition(cluster, "Ready").get("status") == "True", f"{cluster} is ready", seconds=seconds
        )

    def events(self) -> set[str]:
        """The reasons of the namespace's events."""
        return {event["reason"] for event in self.get("events")}

    def limit(self, name: str, hard: dict[str, str]) -> None:
        """Apply a ResourceQuota, and wait until it is heeded."""
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": hard}}
        self.apply(quota)

        is_heeded = lambda: self.find("resourcequotas", name).get("status", {}).get("hard") == hard  # noqa: E731
        self.wait(is_heeded, f"the quota {name} is heeded")

    def wait_observed(self, cluster: str) -> None:
        """Wait until the operator has looked at the cluster's spec as it is now."""
        generation = self.find(PLURAL, cluster)["metadata"]["generation"]
        self.wait(lambda: self.status(cluster).get("observedGeneration") == generation, "the edit is observed")

    def wait_pods(self, cluster: str, pool: str, count: int, *, seconds: float = 150) -> None:
        """Wait until a pool has exactly so many pods, terminating ones included."""
        what = f"pool {pool} of {cluster} has {count} pods"
        self.wait(lambda: len(self.pods(cluster, pool)) == count, what, seconds=seconds)

    def wait_workers(self, cluster: str, pool: str, count: int, *, seconds: float = 150) -> None:
        """Wait until the scheduler knows exactly so many workers of a pool, by the status."""
        what = f"pool {pool} of {cluster} has {count} workers"
        self.wait(lambda: self.pool(cluster, pool).get("workers") == count, what, seconds=seconds)

    def show(self) -> str:
        """What there is, for a person who looks into a failure."""
        ours = "gdc,gdj,gdcj"
        tables = self.kubectl.attempt("get", f"{ours},pods", "-o", "wide").stdout
        statuses = self.kubectl.attempt("get", ours, "-o", "jsonpath={range .items[*]}{.status}{'\\n'}{end}").stdout
        return f"\n{tables}\n{statuses}"

    def _path(self, version: str) -> str:
        """Where the namespace's objects of a version of the API are."""
        root = "apis" if "/" in version else "api"
        return f"/{root}/{version}/namespaces/{self.kubectl.namespace}"

    @contextmanager
    def client(self, cluster: str) -> Iterator[Client]:
        """A Dask client of a cluster, once its scheduler is ready: kubectl forwards no port to one that starts."""
        self.wait(
            lambda: self.condition(cluster, "SchedulerReady").get("status") == "True",
            f"the scheduler of {cluster} is ready",
            seconds=90,
        )
        with (
            self.platform.provider.scheduler_address(self.kubectl, cluster) as address,
            Client(address, timeout=60) as client,
        ):
            client.upload_file(gpudask_e2e.__file__)
            yield client


def _has_gpu(pod: Json) -> bool:
    """Whether a pod was given GPUs."""
    limits = [container.get("resources", {}).get("limits", {}) for container in pod["spec"]["containers"]]
    return "nodeName" in pod["spec"] and any("nvidia.com/gpu" in each for each in limits)
