"""Waiting for a cluster's scheduler, and saying why it is not there yet."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.health import is_up_soon
from gpudask.kubecluster.patience import Patience
from gpudask.kubecluster.pods import has_started, is_ready, list_pods
from gpudask.kubecluster.progress import Progress
from gpudask.kubecluster.reasons import (
    OPERATOR_STEP,
    OUTDATED,
    waits_for,
    where_to_look,
    why_no_scheduler,
    why_not_ready,
)
from gpudask.kubecluster.request import ENVIRONMENT_STEP, FORBIDDEN
from gpudask.kubecluster.server import Server

Json = dict[str, Any]
_POLL_SECONDS = 0.25
# A scheduler that starts listens after a second or two: it is asked often then, and later ever less. Each time costs
# 20 ms of CPU time altogether, which on a small machine is taken from the scheduler.
_STARTS_SECONDS, _ASK_SELDOM_SECONDS = 1.0, 0.5
_ASK_SECONDS, _ASK_AT_MOST_SECONDS, _ASK_SHARE = 0.15, 1.0, 0.1


class _Seen(Enum):
    NOTHING = auto()
    STARTED = auto()
    READY = auto()


@dataclass(frozen=True)
class _Look:
    """What is there of the scheduler, and a line for each thing that keeps it."""

    seen: _Seen
    lines: list[str]
    pod: str = ""  # that has started


async def scheduler_is_ready(
    server: Server, body: Json, patience: Patience, *, quiet: bool, needs_pods: bool, generation: int = 0
) -> Json:
    """Wait until the scheduler of a cluster answers; the cluster as it is then.

    Its pod is looked at, and the cluster's status only where pods may not be listed: an operator that is behind, or
    away, leaves a status that speaks of a scheduler which is gone.

    Args:
        server: where.
        body: the cluster as last read.
        patience: how long. An API server that does not answer meanwhile is asked again.
        quiet: do not say what it waits for.
        needs_pods: whether permission to list pods and to forward their ports is needed later anyway: without the
            first, that is an error now, and with the second the scheduler is asked before its pod is ready.
        generation: a status of an earlier one is not believed: it may speak of a scheduler that is on its way out.

    Raises:
        KubeClusterError: not in time, or the cluster is suspended or deleted; or the server refuses.
    """
    name = body["metadata"]["name"]
    started: float | None = None
    with Progress(f"cluster {name}", quiet=quiet) as progress:
        while True:
            if body["spec"].get("suspend"):
                raise _suspended(body)
            look = await patience.ask(_look(server, body, needs_pods, generation))
            if look is not None and look.seen is _Seen.READY:
                return body
            progress.show([patience.trouble] if look is None else look.lines)
            if patience.is_over:
                raise _not_ready(body, patience)
            if look is not None and look.seen is _Seen.STARTED:
                started = started or time.monotonic()
                if await is_up_soon(server, look.pod, pause_seconds=_pause(time.monotonic() - started)):
                    return body
            else:
                started = None
            await asyncio.sleep(_POLL_SECONDS)
            body = await patience.ask(server.cluster(name)) or body


def _pause(asked_for_seconds: float) -> float:
    if asked_for_seconds < _STARTS_SECONDS:
        return _ASK_SELDOM_SECONDS
    return min(_ASK_AT_MOST_SECONDS, max(_ASK_SECONDS, asked_for_seconds * _ASK_SHARE))


async def _look(server: Server, body: Json, needs_pods: bool, generation: int) -> _Look:
    try:
        # The pod's own readiness: it is known some hundred milliseconds before the status says so.
        pods = await list_pods(server, body["metadata"]["name"], component="scheduler")
    except KubeClusterError as error:
        if error.status != FORBIDDEN:
            raise
        if _is_told_ready(body, generation):
            return _Look(_Seen.READY, [])
        if needs_pods:
            raise
        return _Look(_Seen.NOTHING, [f"scheduler: {why_not_ready(body)}"])
    if any(is_ready(pod) for pod in pods):
        return _Look(_Seen.READY, [])
    lines = waits_for(body, pods)
    youngest = max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)
    if youngest is None or not (needs_pods and has_started(youngest)):
        return _Look(_Seen.NOTHING, lines)
    return _Look(_Seen.STARTED, lines, youngest["metadata"]["name"])


def _is_told_ready(body: Json, generation: int) -> bool:
    status = body.get("status") or {}
    is_of_now = status.get("observedGeneration", 0) >= generation
    return is_of_now and bool(status.get("scheduler", {}).get("ready", False))


def _not_ready(body: Json, patience: Patience) -> KubeClusterError:
    reason = patience.trouble or why_no_scheduler(body)
    look = OPERATOR_STEP if reason == OUTDATED else where_to_look(body)
    return KubeClusterError(
        f"the scheduler of cluster {body['metadata']['name']!r} was not ready within {patience.limit_seconds:g} s",
        reason=reason,
        next_step=ENVIRONMENT_STEP if patience.trouble else f"{look}, or wait longer: timeout=600",
    )


def _suspended(body: Json) -> KubeClusterError:
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    return KubeClusterError(
        f"cluster {name!r} is suspended",
        reason="it has no scheduler while it is",
        next_step=f"Resume it: gpudask resume {name} -n {namespace}",
    )
