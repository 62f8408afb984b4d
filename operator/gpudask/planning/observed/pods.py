"""A pod, with the few fields that a pass reads. `observed.parser` makes it of the API server's object."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpudask.desired.scheduler import MadeWith

_DIGITS = 9  # of a worker pod's number


@dataclass(frozen=True, slots=True)
class Retirement:
    """Why and how a pod leaves; kept in an annotation on the pod, so that a restarted operator goes on with it.

    `if_idle`: give up when the pod has work of its own by now. `release`: let its results go. `final`: it is replaced
    for its own sake, and not to be called back when its pool grows. `at`: when it began, in seconds since the epoch;
    0.0 where an older operator, or a person, did not say. In the annotation that is the API server's time.
    """

    why: str
    if_idle: bool = False
    release: bool = False
    final: bool = False
    at: float = field(default=0.0, compare=False)

    def dump(self, *, server_ahead: float = 0.0) -> str:
        """The annotation's text. `server_ahead`: as `Observation`'s."""
        at = self.at + server_ahead if self.at else 0.0
        return json.dumps(
            {"why": self.why, "ifIdle": self.if_idle, "release": self.release, "final": self.final, "at": at}
        )


@dataclass(frozen=True, slots=True)
class Ended:
    """How the main container last ended, and when, in seconds since the epoch."""

    reason: str = ""
    exit_code: int = 0
    message: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a cluster. `pool` is empty for the scheduler. Times are seconds since the epoch.

    `observed.parser` reads the times as they were stamped, by whichever clock; `observed.timestamps` brings them to
    the operator's clock, and keeps the `stamps`. `delete_by`: when a pod whose deletion was asked for has had its
    `grace_seconds`.

    `marks`: what it says to node autoscalers, in the order of `desired.disruption.EVICTION_ANNOTATIONS`. `gpus`: how
    many it was made with, whatever the spec says by now; 0 where its annotation is missing. `placed`: when it got its
    node.
    `serves`: whether the cluster's Service leads to it. `preload`: the ConfigMap with the code that runs in a
    scheduler. `finalizers`: what others put there, which keeps it after its
    deletion until they take it off. `preempted`: what ended it was its node or another pod, such as a spot preemption,
    and not itself. `made_with`: of a scheduler; None where an older operator made it.
    """

    uid: str
    name: str
    namespace: str
    owner: str
    version: str
    pool: str = ""
    dask_name: str = ""
    spec_hash: str = ""
    phase: str = "Pending"
    ready: bool = False
    started: float = 0.0
    node: str = ""
    placed: float = 0.0
    ip: str = ""
    created: float = 0.0
    delete_by: float = 0.0
    grace_seconds: float = 0.0
    unschedulable: str = ""
    waiting: str = ""
    restarts: int = 0
    ended: Ended | None = None
    retirement: Retirement | None = None
    marks: tuple[str, ...] = ()
    gpus: int = 0
    serves: bool = False
    preload: str = ""
    finalizers: tuple[str, ...] = ()
    preempted: bool = False
    made_with: MadeWith | None = None
    stamps: tuple[float, ...] = ()

    @property
    def deleting(self) -> bool:
        """Whether its deletion was asked for."""
        return self.delete_by > 0

    @property
    def finished(self) -> bool:
        """Whether it ended for good: evicted, node shut down."""
        return self.phase in ("Failed", "Succeeded")

    @property
    def live(self) -> bool:
        """Whether it is or may become a working pod."""
        return not self.deleting and not self.finished

    @property
    def stays(self) -> bool:
        """Whether it is live, and nobody asked it to leave."""
        return self.live and self.retirement is None

    @property
    def leaves(self) -> bool:
        """Whether it is live, and is to leave: it drains."""
        return self.live and self.retirement is not None

    @property
    def running(self) -> bool:
        """Whether its main container runs now; while it does not, there is nothing in it to lose."""
        return self.started > 0.0

    @property
    def ran(self) -> bool:
        """Whether its container runs or ran: there was a worker in it."""
        return self.running or self.restarts > 0 or self.ended is not None

    @property
    def number(self) -> int:
        """The number at the end of a worker pod's name; the highest for a pod that somebody else gave its name."""
        digits = self.name.rpartition("-")[2]
        return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS else 10**_DIGITS


def current_scheduler(pods: Iterable[Pod]) -> Pod | None:
    """Of a cluster's `pods` the live scheduler, the oldest should there be several."""
    live = (pod for pod in pods if not pod.pool and pod.live)
    return min(live, key=lambda pod: (pod.created, pod.name), default=None)
