"""Waiting for a cluster's scheduler, and saying why it is not there yet.

Once its pod has started, the scheduler is asked what the kubelet's probe asks, through a port forwarded to it. A pod is
ready only when the kubelet has looked again and has said so, up to some seconds after the scheduler listens. Workers
do not wait for that, and neither does a program.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from gpudask.api.json_object import Json
from gpudask.api.stock import DASHBOARD_PORT
from gpudask.kubecluster.display import Progress
from gpudask.kubecluster.errors import (
    OPERATOR_STEP,
    OUTDATED,
    KubeClusterError,
    waits_for,
    where_to_look,
    why_no_scheduler,
    why_not_ready,
)
from gpudask.kubecluster.forward.websocket import PodPort, open_port
from gpudask.kubecluster.kube.pods import has_started, is_ready, list_pods
from gpudask.kubecluster.kube.request import ENVIRONMENT_STEP, FORBIDDEN
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.timing import Deadline, Timing

_HEALTH = b"GET /health HTTP/1.0\r\n\r\n"
_PAUSE_SHARE = 0.1  # of the time for which it was asked


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
    server: Server,
    body: Json,
    deadline: Deadline,
    *,
    progress: Callable[[], Progress],
    needs_pods: bool,
    generation: int = 0,
) -> Json:
    """Wait until the scheduler of a cluster answers; the cluster as it is then.

    Its pod is looked at, and the cluster's status only where pods may not be listed: an operator that is behind, or
    away, leaves a status that speaks of a scheduler which is gone.

    Args:
        server: where.
        body: the cluster as last read.
        deadline: how long. An API server that does not answer meanwhile is asked again.
        progress: what shows that it waits.
        needs_pods: whether permission to list pods and to forward their ports is needed later anyway: without the
            first, that is an error now, and with the second the scheduler is asked before its pod is ready.
        generation: a status of an earlier one is not believed: it may speak of a scheduler that is on its way out.

    Raises:
        KubeClusterError: not in time, or the cluster is suspended or deleted; or the server refuses.
    """
    name = body["metadata"]["name"]
    timing, started = server.timing, None
    with progress() as shown:
        while True:
            if body["spec"].get("suspend"):
                raise _suspended(body)
            look = await deadline.ask(_look(server, body, needs_pods, generation))
            if look is not None and look.seen is _Seen.READY:
                return body
            shown.show([deadline.trouble] if look is None else look.lines)
            if deadline.is_over:
                raise _not_ready(body, deadline)
            if look is not None and look.seen is _Seen.STARTED:
                started = started or timing.clock.monotonic()
                pause_seconds = _pause(timing.clock.monotonic() - started, timing)
                if await _is_up_soon(server, look.pod, pause_seconds=pause_seconds):
                    return body
            else:
                started = None
            await timing.clock.sleep(timing.readiness_poll_seconds)
            body = await deadline.ask(server.cluster(name)) or body


def _pause(asked_for_seconds: float, timing: Timing) -> float:
    if asked_for_seconds < timing.health_first_seconds:
        return timing.health_seldom_seconds
    return min(timing.health_most_seconds, max(timing.health_least_seconds, asked_for_seconds * _PAUSE_SHARE))


async def _is_up_soon(server: Server, pod: str, *, pause_seconds: float) -> bool:
    """Whether the scheduler in `pod` answers within about a second, asked again and again with pauses.

    Returns at once, with False, where no port may be forwarded.
    """
    clock = server.timing.clock
    deadline = clock.monotonic() + server.timing.health_seconds
    try:
        while not await _is_up(server, pod):
            if clock.monotonic() + pause_seconds > deadline:
                return False
            await clock.sleep(pause_seconds)
    except KubeClusterError:
        return False
    return True


async def _is_up(server: Server, pod: str) -> bool:
    try:
        async with asyncio.timeout(server.timing.health_seconds), open_port(server, pod, DASHBOARD_PORT) as opened:
            return await _is_answered(opened)
    except OSError:  # a TimeoutError is one
        return False


async def _is_answered(opened: PodPort) -> bool:
    try:
        await opened.send(_HEALTH)
    except ConnectionError:
        return False
    return (await opened.receive()).startswith(b"HTTP/")  # nothing, where nothing listens yet


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


def _not_ready(body: Json, deadline: Deadline) -> KubeClusterError:
    reason = deadline.trouble or why_no_scheduler(body)
    look = OPERATOR_STEP if reason == OUTDATED else where_to_look(body)
    return KubeClusterError(
        f"the scheduler of cluster {body['metadata']['name']!r} was not ready within {deadline.limit_seconds:g} s",
        reason=reason,
        next_step=ENVIRONMENT_STEP if deadline.trouble else f"{look}, or wait longer: timeout=600",
    )


def _suspended(body: Json) -> KubeClusterError:
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    return KubeClusterError(
        f"cluster {name!r} is suspended",
        reason="it has no scheduler while it is",
        next_step=f"Resume it: gpudask resume {name} -n {namespace}",
    )
