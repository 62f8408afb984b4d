"""The wait for a scheduler to be ready: its pod, what the scheduler itself answers, and the cluster's status.

Once its pod has started, the scheduler is asked what the kubelet's probe asks, through a port forwarded to it. A pod is
ready only when the kubelet has looked again and has said so, up to some seconds after the scheduler listens. Workers
do not wait for that, and neither does a program.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from gpudask.api import Json
from gpudask.api.addresses import DASHBOARD_PORT
from gpudask.api.image_pull import REASONS
from gpudask.kubecluster.display import Progress
from gpudask.kubecluster.errors import (
    IMAGE_STEP,
    OPERATOR_STEP,
    OUTDATED,
    KubeClusterError,
    KubeClusterTimeoutError,
    KubeClusterValueError,
    not_observed,
    refused_pull,
    waits_for,
    where_to_look,
    why_no_scheduler,
    why_not_accepted,
    why_not_ready,
)
from gpudask.kubecluster.forward.pod_port import PodPort, open_port
from gpudask.kubecluster.kube.pods import SchedulerNews, has_started, is_ready, list_pods
from gpudask.kubecluster.kube.request import ENVIRONMENT_STEP, FORBIDDEN
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.timing import Deadline, Timing

_HEALTH = b"GET /health HTTP/1.0\r\n\r\n"
_PAUSE_SHARE = 0.1  # of the time for which it was asked


class _State(Enum):
    NOTHING = auto()
    STARTED = auto()
    READY = auto()


@dataclass(frozen=True)
class _Readiness:
    """The state of the scheduler's pod, and a line for each reason why it is not ready."""

    state: _State
    lines: list[str]
    pod: str = ""  # that has started
    refused_pull: str = ""  # of its image, which no further try mends


async def scheduler_is_ready(
    server: Server,
    body: Json,
    deadline: Deadline,
    *,
    progress: Callable[[], Progress],
    needs_pods: bool,
    generation: int = 0,
    is_new: bool = False,
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
        is_new: whether the cluster was created just now: nobody else will correct what the operator does not accept.

    Raises:
        KubeClusterError: not in time, or not accepted, or the cluster is suspended or deleted; or the server refuses.
    """
    async with SchedulerNews(server, body["metadata"]["name"]).followed() as news:
        return await _ready_body(
            server, body, deadline, news, progress=progress, needs_pods=needs_pods, generation=generation, is_new=is_new
        )


async def _ready_body(
    server: Server,
    body: Json,
    deadline: Deadline,
    news: SchedulerNews,
    *,
    progress: Callable[[], Progress],
    needs_pods: bool,
    generation: int,
    is_new: bool,
) -> Json:
    name = body["metadata"]["name"]
    timing, started, refused_since = server.timing, None, math.inf
    read_at = timing.clock.monotonic()
    with progress() as shown:
        while True:
            if body["spec"].get("suspend"):
                raise _suspended(body)
            if is_new and (why := why_not_accepted(body)):
                raise _not_accepted(body, why)
            readiness = await deadline.attempt(_read_readiness(server, body, needs_pods, generation))
            if readiness is not None and readiness.state is _State.READY:
                return body
            shown.show([deadline.trouble] if readiness is None else readiness.lines)
            if deadline.is_over:
                raise _not_ready(body, deadline)
            if readiness is not None:
                refused_since = _check_pull(body, readiness, refused_since, timing)
            if readiness is not None and readiness.state is _State.STARTED:
                started = started or timing.clock.monotonic()
                pause_seconds = _pause(timing.clock.monotonic() - started, timing)
                if await _is_up_soon(server, readiness.pod, pause_seconds=pause_seconds):
                    return body
            else:
                started = None
            is_told = news.is_told and started is None
            pause_seconds = timing.readiness_told_seconds if is_told else timing.readiness_poll_seconds
            await news.wait(min(pause_seconds, deadline.left_seconds))
            if timing.clock.monotonic() >= read_at + timing.readiness_status_seconds:
                read_at = timing.clock.monotonic()
                body = await deadline.attempt(server.cluster(name)) or body


def _pause(asked_for_seconds: float, timing: Timing) -> float:
    if asked_for_seconds < timing.health_first_seconds:
        return timing.health_seldom_seconds
    return min(timing.health_most_seconds, max(timing.health_least_seconds, asked_for_seconds * _PAUSE_SHARE))


async def _is_up_soon(server: Server, pod: str, *, pause_seconds: float) -> bool:
    """True if the scheduler in `pod` answers within about a second, asked again and again with pauses.

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


async def _read_readiness(server: Server, body: Json, needs_pods: bool, generation: int) -> _Readiness:
    try:
        # The pod's own readiness: it is known some hundred milliseconds before the status says so.
        pods = await list_pods(server, body["metadata"]["name"], body["metadata"]["uid"], component="scheduler")
    except KubeClusterError as error:
        if error.status != FORBIDDEN:
            raise
        if _status_is_ready(body, generation):
            return _Readiness(_State.READY, [])
        if needs_pods:
            raise
        waits = [f"scheduler: {why_not_ready(body)}"]
        return _Readiness(_State.NOTHING, waits, refused_pull=refused_pull(body, []))
    if any(is_ready(pod) for pod in pods):
        return _Readiness(_State.READY, [])
    lines = waits_for(body, pods)
    youngest = max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)
    if youngest is None or not (needs_pods and has_started(youngest)):
        return _Readiness(_State.NOTHING, lines, refused_pull=refused_pull(body, [youngest] if youngest else []))
    return _Readiness(_State.STARTED, lines, youngest["metadata"]["name"])


def _status_is_ready(body: Json, generation: int) -> bool:
    status = body.get("status") or {}
    is_of_now = status.get("observedGeneration", 0) >= generation
    return is_of_now and bool(status.get("scheduler", {}).get("ready", False))


def _check_pull(body: Json, readiness: _Readiness, refused_since: float, timing: Timing) -> float:
    """Since when the pull of the scheduler's image fails as no further try mends, by the monotonic clock; or infinity.

    Between two tries the kubelet says only that it waits.

    Raises:
        KubeClusterError: that has lasted.
    """
    now = timing.clock.monotonic()
    if not readiness.refused_pull:
        return refused_since if _waits_for_image(readiness.lines) else math.inf
    if now - refused_since >= timing.refused_pull_seconds:
        raise _cannot_pull(body, readiness.refused_pull)
    return min(refused_since, now)


def _waits_for_image(lines: list[str]) -> bool:
    return any(reason in line for line in lines for reason in REASONS)


async def accepted(server: Server, body: Json) -> Json:
    """The new cluster once the operator has tried its templates by a dry run; as it is where that takes long.

    Raises:
        KubeClusterError: the operator does not act on it as it is written.
    """
    deadline = Deadline(server.timing.accepted_seconds, server.timing)
    while not_observed(body) and not deadline.is_over:
        body = await deadline.attempt(server.cluster(body["metadata"]["name"])) or body
        if not_observed(body):
            await server.timing.clock.sleep(server.timing.readiness_poll_seconds)
    if why := why_not_accepted(body):
        raise _not_accepted(body, why)
    return body


def _not_accepted(body: Json, why: str) -> KubeClusterError:
    return KubeClusterValueError(
        f"cluster {body['metadata']['name']!r} is not accepted",
        reason=why,
        next_step="Correct what is named, and create it again",
    )


def _cannot_pull(body: Json, why: str) -> KubeClusterError:
    return KubeClusterError(
        f"the scheduler of cluster {body['metadata']['name']!r} cannot start", reason=why, next_step=IMAGE_STEP
    )


def _not_ready(body: Json, deadline: Deadline) -> KubeClusterError:
    reason = deadline.trouble or why_no_scheduler(body)
    step = OPERATOR_STEP if reason == OUTDATED else where_to_look(body)
    longer = IMAGE_STEP if _waits_for_image([reason]) else f"{step}, or wait longer: timeout=600"
    return KubeClusterTimeoutError(
        f"the scheduler of cluster {body['metadata']['name']!r} was not ready within {deadline.limit_seconds:g} s",
        reason=reason,
        next_step=ENVIRONMENT_STEP if deadline.trouble else longer,
    )


def _suspended(body: Json) -> KubeClusterError:
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    return KubeClusterError(
        f"cluster {name!r} is suspended",
        reason="it has no scheduler while it is",
        next_step=f"Resume it: gpudask resume {name} -n {namespace}",
    )
