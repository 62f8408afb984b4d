"""A cluster's pods as the API server knows them. Their logs are in pod_log.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpudask.api.resource import LABEL_CLUSTER, LABEL_DASK_COMPONENT, LABEL_POOL
from gpudask.kubecluster.request import Connection

Json = dict[str, Any]
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class SchedulerPod:
    """One very pod: a scheduler's successor may bear its name again, but has another uid.

    `is_ready`: it takes connections. One that is busy for long does not, and is still there.
    """

    name: str
    uid: str
    is_ready: bool


async def list_pods(server: Connection, name: str, *, component: str = "", pool: str = "") -> list[Json]:
    """The pods of cluster `name`, by their names.

    Args:
        server: whose namespace is asked.
        name: the cluster's.
        component: `scheduler` or `worker`; both without it.
        pool: only that pool's.
    """
    labels = {LABEL_CLUSTER: name, LABEL_DASK_COMPONENT: component, LABEL_POOL: pool}
    selector = ",".join(f"{label}={value}" for label, value in labels.items() if value)
    answer = await server.call("list", "pods", params={"labelSelector": selector})
    return sorted(answer["items"], key=lambda pod: str(pod["metadata"]["name"]))


async def scheduler_pods(server: Connection, name: str) -> list[SchedulerPod]:
    """The scheduler pods of cluster `name` that have not ended, the youngest first.

    While a scheduler is being replaced there may be two: the younger one is there to stay.
    """
    pods = await list_pods(server, name, component="scheduler")
    pods.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)
    return [
        SchedulerPod(pod["metadata"]["name"], pod["metadata"]["uid"], is_ready(pod))
        for pod in pods
        if pod.get("status", {}).get("phase") not in _ENDED
    ]


def has_started(pod: Json) -> bool:
    """Whether a pod is Running, and not on its way out."""
    return pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def is_ready(pod: Json) -> bool:
    """Whether a pod is Running and Ready, and not on its way out."""
    conditions = {item["type"]: item["status"] for item in pod.get("status", {}).get("conditions", [])}
    return has_started(pod) and conditions.get("Ready") == "True"
