"""A cluster's pods as the API server knows them, and their logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus

from gpudask.api import Json
from gpudask.api.resource import LABEL_CLUSTER, LABEL_DASK_COMPONENT, LABEL_POOL
from gpudask.kubecluster.errors import KubeClusterError, why_pod_waits
from gpudask.kubecluster.kube.request import Connection

CONTAINER = "dask"
_ENDED = ("Succeeded", "Failed")
_LOGS_AT_ONCE = 10


@dataclass(frozen=True)
class SchedulerPod:
    """A scheduler pod by its uid: a scheduler's successor may bear its name again, but has another uid.

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
    """True if a pod is Running, and not terminating."""
    return pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def is_ready(pod: Json) -> bool:
    """True if a pod is Running and Ready, and not terminating."""
    conditions = {item["type"]: item["status"] for item in pod.get("status", {}).get("conditions", [])}
    return has_started(pod) and conditions.get("Ready") == "True"


async def read_log(
    server: Connection,
    pod: str,
    *,
    tail: int | None = None,
    since_seconds: int | None = None,
    previous: bool = False,
    container: str = CONTAINER,
) -> list[str]:
    """The lines of a pod's log.

    Args:
        server: whose namespace is asked.
        pod: its name.
        tail: only that many lines from the end.
        since_seconds: only lines that are no older.
        previous: of the container before its last restart; the server answers 400 where there was none.
        container: sidecars have logs of their own.
    """
    options = _log_options(tail, since_seconds, container) | ({"previous": "true"} if previous else {})
    return [line async for line in server.lines("get", "pods", pod, subresource="log", params=options)]


async def follow_log(
    server: Connection,
    pod: str,
    *,
    tail: int | None = None,
    since_seconds: int | None = None,
    container: str = CONTAINER,
) -> AsyncGenerator[str, None]:
    """The lines of a pod's log as they come, until its container ends."""
    options = _log_options(tail, since_seconds, container) | {"follow": "true"}
    read = server.lines("get", "pods", pod, subresource="log", params=options, silence_seconds=None)
    async with aclosing(read) as lines:
        async for line in lines:
            yield line


async def read_logs(
    server: Connection, name: str, *, scheduler: bool, workers: bool, pool: str, tail: int | None
) -> dict[str, str]:
    """The logs of cluster `name`'s pods by pod name, ended ones too; of a pod without any, what it waits for.

    Args:
        server: where.
        name: the cluster's.
        scheduler: the scheduler's.
        workers: the workers'.
        pool: only that pool's; empty for all.
        tail: only that many lines of each from the end.

    Raises:
        KubeClusterError: the server refuses, or no log at all can be read. One of several that cannot be read says so.
    """
    if not (scheduler or workers):
        return {}
    component = "" if scheduler and workers else "worker" if workers else "scheduler"
    gate = asyncio.Semaphore(_LOGS_AT_ONCE)

    async def one(pod: Json) -> str | KubeClusterError:
        async with gate:
            try:
                return "\n".join(await read_log(server, pod["metadata"]["name"], tail=tail))
            except KubeClusterError as error:
                if error.status == HTTPStatus.BAD_REQUEST:  # the server's word for a container that never ran
                    return f"no log yet: {why_pod_waits(pod) or error.reason}"
                if error.status == HTTPStatus.NOT_FOUND:
                    return "no log: the pod has gone meanwhile"
                if not error.may_pass:
                    raise
                return error

    pods = await list_pods(server, name, component=component, pool=pool)
    texts = await asyncio.gather(*(one(pod) for pod in pods))
    unread = [text for text in texts if isinstance(text, KubeClusterError)]
    if unread and len(unread) == len(pods):
        raise unread[0]
    return {pod["metadata"]["name"]: _log_or_reason(text) for pod, text in zip(pods, texts, strict=True)}


def _log_or_reason(text: str | KubeClusterError) -> str:
    return text if isinstance(text, str) else f"not read: {text.reason}"


def _log_options(tail: int | None, since_seconds: int | None, container: str) -> dict[str, str]:
    limits = {"tailLines": tail, "sinceSeconds": since_seconds}
    return {"container": container} | {name: str(limit) for name, limit in limits.items() if limit is not None}
