"""What the API server knows of a cluster's pods: the pods, their logs, and events; and the nodes for them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from gpudask.api.resource import LABEL_CLUSTER, LABEL_DASK_COMPONENT, LABEL_POOL
from gpudask.kubecluster.request import Connection

Json = dict[str, Any]
CONTAINER = "dask"
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


async def get_pod(server: Connection, pod: str) -> Json:
    """One pod by its name; a `KubeClusterError` with `status` 404 where there is none."""
    return await server.call("get", "pods", pod)


async def read_log(
    server: Connection, pod: str, *, tail: int | None = None, previous: bool = False, container: str = CONTAINER
) -> list[str]:
    """The lines of a pod's log.

    Args:
        server: whose namespace is asked.
        pod: its name.
        tail: only that many lines from the end.
        previous: of the container before its last restart; the server answers 400 where there was none.
        container: sidecars have logs of their own.
    """
    options = _log_options(tail=tail, container=container) | ({"previous": "true"} if previous else {})
    return [line async for line in server.lines("get", "pods", pod, subresource="log", params=options)]


async def follow_log(
    server: Connection, pod: str, *, tail: int | None = None, container: str = CONTAINER
) -> AsyncGenerator[str, None]:
    """The lines of a pod's log as they come, until its container ends."""
    options = _log_options(tail=tail, container=container) | {"follow": "true"}
    read = server.lines("get", "pods", pod, subresource="log", params=options, silence_seconds=None)
    async with aclosing(read) as lines:
        async for line in lines:
            yield line


async def list_events(server: Connection, uid: str = "", name: str = "") -> list[Json]:
    """The events (core/v1) about one object, the last one at the end.

    Args:
        server: whose namespace is asked.
        uid: the object's. Better than a name: an object made anew has other events.
        name: the object's, where its uid is not known.
    """
    selected = {"involvedObject.uid": uid, "involvedObject.name": name}
    selector = ",".join(f"{field}={value}" for field, value in selected.items() if value)
    answer = await server.call("list", "events", params={"fieldSelector": selector} if selector else {})
    return sorted(answer["items"], key=last_seen)


def last_seen(event: Json) -> str:
    """When an event last happened, in RFC 3339; of whichever API it came through."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    created = event.get("metadata", {}).get("creationTimestamp", "")
    return str(next((time for time in times if time), created))


async def list_nodes(server: Connection) -> list[Json]:
    """All nodes, by their names. This takes a ClusterRole."""
    answer = await server.call("list", "nodes", namespace="")
    return sorted(answer["items"], key=lambda node: str(node["metadata"]["name"]))


def has_started(pod: Json) -> bool:
    """Whether a pod is Running, and not on its way out."""
    return pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def is_ready(pod: Json) -> bool:
    """Whether a pod is Running and Ready, and not on its way out."""
    conditions = {item["type"]: item["status"] for item in pod.get("status", {}).get("conditions", [])}
    return has_started(pod) and conditions.get("Ready") == "True"


def _log_options(*, tail: int | None, container: str) -> dict[str, str]:
    return {"container": container} | ({} if tail is None else {"tailLines": str(tail)})
