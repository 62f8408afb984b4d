"""A time without a scheduler, and why: what the API server knows of its pod, and else what it or the operator says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.pods import is_ready, list_pods
from gpudask.kubecluster.reasons import where_to_look, why_no_scheduler, why_scheduler_waits
from gpudask.kubecluster.request import FORBIDDEN, NOT_FOUND
from gpudask.kubecluster.server import Server
from gpudask.kubecluster.timing import Clock

Json = dict[str, Any]


@dataclass(frozen=True)
class Cause:
    """What keeps a scheduler away.

    Attributes:
        reason: in the words of who said it.
        next_step: what to do.
        body: the cluster as it is now; empty where it could not be read.
        has_ready_pod: the scheduler is there, and only the way to it is lost.
    """

    reason: str
    next_step: str
    body: Json = field(default_factory=dict)
    has_ready_pod: bool = False


@dataclass(frozen=True)
class Outage:
    """A time without a scheduler; `began` is of the monotonic clock, in seconds."""

    clock: Clock
    began: float

    @classmethod
    def now(cls, clock: Clock) -> Outage:
        """One that begins."""
        return cls(clock, clock.monotonic())

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return self.clock.monotonic() - self.began


async def cause_of(server: Server, name: str, trouble: str) -> Cause:
    """Why the scheduler of cluster `name` is away, found out within 5 s.

    Args:
        server: where it is.
        name: the cluster's.
        trouble: why it was not reached, as whoever tried says it.
    """
    try:
        async with asyncio.timeout(server.timing.cause_seconds):
            body = await server.cluster(name)
            pods = await _pods(server, name)
    except TimeoutError:
        reason = f"the API server does not answer: no word within {server.timing.cause_seconds:g} s"
        return Cause(reason, "Check that `kubectl version` answers")
    except KubeClusterError as error:
        if error.status == NOT_FOUND:
            return Cause(f"there is no such cluster any more in namespace {server.namespace!r}", "Create it again")
        return Cause(f"the API server does not tell why: {error.reason}", error.next_step)
    if pods is None:
        return Cause(why_no_scheduler(body), where_to_look(body), body)
    staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    if ready := [pod["metadata"]["name"] for pod in staying if is_ready(pod)]:
        reason = f"its pod {ready[0]} is ready, but is not reached" + (f": {trouble}" if trouble else "")
        return Cause(reason, f"See its log: kubectl logs {ready[0]} -n {server.namespace}", body, has_ready_pod=True)
    return Cause("; ".join(why_scheduler_waits(body, staying)), where_to_look(body), body)


async def _pods(server: Server, name: str) -> list[Json] | None:
    """The scheduler's pods; None where they may not be listed."""
    try:
        return await list_pods(server, name, component="scheduler")
    except KubeClusterError as error:
        if error.status != FORBIDDEN:
            raise
        return None
