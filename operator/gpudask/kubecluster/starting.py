"""Waiting for a cluster's scheduler, and saying why it is not there yet."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.pods import is_ready, list_pods
from gpudask.kubecluster.progress import Progress
from gpudask.kubecluster.reasons import waits_for, where_to_look, why_not_ready
from gpudask.kubecluster.request import FORBIDDEN
from gpudask.kubecluster.server import Server

Json = dict[str, Any]
_POLL_SECONDS = 0.25


async def scheduler_is_ready(
    server: Server, body: Json, *, limit_seconds: float, quiet: bool, needs_pods: bool, generation: int = 0
) -> Json:
    """Wait until the scheduler of a cluster answers; the cluster as it is then.

    Args:
        server: where.
        body: the cluster as last read.
        limit_seconds: how long.
        quiet: do not say what it waits for.
        needs_pods: whether permission to list pods is needed later anyway: without it, that is an error now.
        generation: a status of an earlier one is not believed: it may speak of a scheduler that is on its way out.

    Raises:
        KubeClusterError: not in time, or the cluster is suspended or deleted; or the server refuses.
    """
    name = body["metadata"]["name"]
    deadline = time.monotonic() + limit_seconds
    with Progress(f"cluster {name}", quiet=quiet) as progress:
        while not await _is_there(server, body, progress, needs_pods, generation):
            if body["spec"].get("suspend"):
                raise _suspended(body)
            if time.monotonic() > deadline:
                raise _not_ready(body, limit_seconds)
            await asyncio.sleep(_POLL_SECONDS)
            body = await server.cluster(name)
    return body


async def _is_there(server: Server, body: Json, progress: Progress, needs_pods: bool, generation: int) -> bool:
    status = body.get("status", {})
    is_of_now = status.get("observedGeneration", 0) >= generation
    if is_of_now and status.get("scheduler", {}).get("ready", False) and not body["spec"].get("suspend"):
        return True
    try:
        # The pod's own readiness: it is known some hundred milliseconds before the status says so.
        pods = await list_pods(server, body["metadata"]["name"], component="scheduler")
    except KubeClusterError as error:
        if needs_pods or error.status != FORBIDDEN:
            raise
        progress.show([f"scheduler: {why_not_ready(body)}"])
        return False
    if any(is_ready(pod) for pod in pods):
        return True
    progress.show(waits_for(body, pods))
    return False


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
