"""Waiting for a cluster's scheduler, and saying why it is not there yet."""

from __future__ import annotations

import asyncio
import time
from enum import Enum, auto
from typing import Any

from gpudask.kubecluster.answering import answers
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.pods import has_started, is_ready, list_pods
from gpudask.kubecluster.progress import Progress
from gpudask.kubecluster.reasons import waits_for, where_to_look, why_not_ready
from gpudask.kubecluster.request import FORBIDDEN
from gpudask.kubecluster.server import Server

Json = dict[str, Any]
_POLL_SECONDS = 0.25
# A scheduler that has started listens within a second or two: it is asked often at first, then ever less.
_ASK_SECONDS, _ASK_AT_MOST_SECONDS, _ASK_SHARE = 0.1, 1.0, 0.1


class _Seen(Enum):
    NOTHING = auto()
    STARTED = auto()
    READY = auto()


async def scheduler_is_ready(
    server: Server, body: Json, *, limit_seconds: float, quiet: bool, needs_pods: bool, generation: int = 0
) -> Json:
    """Wait until the scheduler of a cluster answers; the cluster as it is then.

    Args:
        server: where.
        body: the cluster as last read.
        limit_seconds: how long.
        quiet: do not say what it waits for.
        needs_pods: whether permission to list pods and to forward their ports is needed later anyway: without the
            first, that is an error now, and with the second the scheduler is asked before its pod is ready.
        generation: a status of an earlier one is not believed: it may speak of a scheduler that is on its way out.

    Raises:
        KubeClusterError: not in time, or the cluster is suspended or deleted; or the server refuses.
    """
    name = body["metadata"]["name"]
    deadline = time.monotonic() + limit_seconds
    started: float | None = None
    with Progress(f"cluster {name}", quiet=quiet) as progress:
        while (seen := await _look(server, body, progress, needs_pods, generation)) is not _Seen.READY:
            if body["spec"].get("suspend"):
                raise _suspended(body)
            now = time.monotonic()
            if now > deadline:
                raise _not_ready(body, limit_seconds)
            started = (started or now) if seen is _Seen.STARTED else None
            await asyncio.sleep(_POLL_SECONDS if started is None else _pause(now - started))
            body = await server.cluster(name)
    return body


def _pause(asked_for_seconds: float) -> float:
    return min(_ASK_AT_MOST_SECONDS, max(_ASK_SECONDS, asked_for_seconds * _ASK_SHARE))


async def _look(server: Server, body: Json, progress: Progress, needs_pods: bool, generation: int) -> _Seen:
    status = body.get("status", {})
    is_of_now = status.get("observedGeneration", 0) >= generation
    if is_of_now and status.get("scheduler", {}).get("ready", False) and not body["spec"].get("suspend"):
        return _Seen.READY
    try:
        # The pod's own readiness: it is known some hundred milliseconds before the status says so.
        pods = await list_pods(server, body["metadata"]["name"], component="scheduler")
    except KubeClusterError as error:
        if needs_pods or error.status != FORBIDDEN:
            raise
        progress.show([f"scheduler: {why_not_ready(body)}"])
        return _Seen.NOTHING
    if any(is_ready(pod) for pod in pods):
        return _Seen.READY
    progress.show(waits_for(body, pods))
    youngest = max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)
    if youngest is None or not (needs_pods and has_started(youngest)):
        return _Seen.NOTHING
    return _Seen.READY if await answers(server, youngest["metadata"]["name"]) else _Seen.STARTED


def _not_ready(body: Json, limit_seconds: float) -> KubeClusterError:
    name = body["metadata"]["name"]
    return KubeClusterError(
        f"the scheduler of cluster {name!r} was not ready within {limit_seconds:g} s",
        reason=why_not_ready(body),
        next_step=f"{where_to_look(body)}, or wait longer: timeout=600",
    )


def _suspended(body: Json) -> KubeClusterError:
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    patch = '{"spec":{"suspend":false}}'
    return KubeClusterError(
        f"cluster {name!r} is suspended",
        reason="it has no scheduler while it is",
        next_step=f"Resume it: kubectl patch gdc {name} -n {namespace} --type=merge -p '{patch}'",
    )
