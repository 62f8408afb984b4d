"""A pod, with the few fields that a pass reads, and with its times on the operator's own clock.

`observed.parser` makes it of the API server's object. The API server stamps creations, the kubelet the start and the
end of a container, an operator before this one the beginning of a drain: each by its own clock, which may be wrong, and
may be set. So a stamp is compared once, when it is first seen, and what it says is believed as far as it can be true:
nothing happened in the future, or before it was last seen otherwise. From then on its age grows by the operator's clock
alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gpudask.desired.scheduler import MadeWith

_DIGITS = 9  # of a worker pod's number
_STAMP_SECONDS = 1.0  # a stamp has whole seconds: it happened within so long after
_BEHIND_SECONDS = 30.0  # by which what a watch tells may be late
_ENDED = 3  # the place of a container's termination among a pod's stamps


@dataclass(frozen=True, slots=True)
class Retirement:
    """The retirement of a pod, kept in an annotation on it, so that a restarted operator goes on with it.

    `why`: for people. `if_idle`: give up when the pod has work of its own by now. `release`: its results may be lost.
    `final`: it is replaced for its own sake, and not to be kept when its pool grows. `at`: when it began, in seconds
    since the epoch; 0.0 where an older operator, or a person, did not say. In the annotation that is the API server's
    time.
    """

    why: str
    if_idle: bool = False
    release: bool = False
    final: bool = False
    at: float = field(default=0.0, compare=False)

    def dump(self, *, server_ahead: float = 0.0) -> str:
        """The annotation's text. `server_ahead`: as `Clocks`'."""
        at = self.at + server_ahead if self.at else 0.0
        return json.dumps(
            {"why": self.why, "ifIdle": self.if_idle, "release": self.release, "final": self.final, "at": at}
        )


@dataclass(frozen=True, slots=True)
class Ended:
    """The last termination of the main container; `at`: seconds since the epoch.

    `is_container`: whether the container's own end is known, and not the pod's alone.
    """

    reason: str = ""
    exit_code: int = 0
    message: str = ""
    at: float = 0.0
    is_container: bool = True


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a cluster. `pool` is empty for the scheduler. Times are seconds since the epoch.

    `observed.parser` reads the times as they were stamped, by whichever clock; `on_operator_clock` brings them
    to the operator's, and keeps the `stamps`. `delete_by`: when a pod whose deletion was asked for has had its
    `grace_seconds`.

    `eviction_annotations`: the values of its `desired.disruption.EVICTION_ANNOTATIONS`, in that order. `gpus`: how many
    it was made with, whatever the spec says by now; 0 where its annotation is missing. `placed`: when it got its node.
    `finished_at`: when it ended for good; as stamped 0.0 where no kubelet says, else when it was first seen to have.
    `serves`: whether the cluster's Service selects it. `preload`: the ConfigMap with the code that runs in a scheduler.
    `finalizers`: those that others put there, which keep it after its deletion until they are removed. `preempted`:
    its node or another pod ended it, as a spot preemption does, and not itself. `made_with`: of a scheduler; None where
    an older operator made it. `disruption`: the reason of its condition DisruptionTarget, where that holds.
    `status_reason`, `status_message`: the kubelet's, of a pod as a whole. `there_at`: of one that is gone, as a list
    alone has shown, when it was last known to be there; else 0.0. `removed_at`: when the API server was asked to delete
    it without any grace, as the kubelet does once it has ended: then it is gone, unless a finalizer keeps it; else 0.0.
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
    eviction_annotations: tuple[str, ...] = ()
    gpus: int = 0
    serves: bool = False
    preload: str = ""
    finalizers: tuple[str, ...] = ()
    preempted: bool = False
    made_with: MadeWith | None = None
    finished_at: float = 0.0
    disruption: str = ""
    status_reason: str = ""
    status_message: str = ""
    stamps: tuple[float, ...] = ()
    there_at: float = 0.0
    removed_at: float = 0.0

    @property
    def deleting(self) -> bool:
        """True if its deletion was asked for."""
        return self.delete_by > 0

    @property
    def finished(self) -> bool:
        """True if it ended for good: evicted, node shut down."""
        return self.phase in ("Failed", "Succeeded")

    @property
    def live(self) -> bool:
        """True if it is or may become a working pod."""
        return not self.deleting and not self.finished

    @property
    def stays(self) -> bool:
        """True if it is live, and not retiring."""
        return self.live and self.retirement is None

    @property
    def leaves(self) -> bool:
        """True if it is live, and retiring: it drains."""
        return self.live and self.retirement is not None

    @property
    def running(self) -> bool:
        """True if its main container runs now; while it does not, there is nothing in it to lose."""
        return self.started > 0.0

    @property
    def ran(self) -> bool:
        """True if its container runs or ran: there was a worker in it."""
        return self.running or self.restarts > 0 or self.ended is not None

    @property
    def ended_stamp(self) -> float:
        """The kubelet's own time of the container's last termination, which is the same for every operator."""
        return self.stamps[_ENDED] if self.stamps else self.ended.at if self.ended is not None else 0.0

    @property
    def number(self) -> int:
        """The number at the end of a worker pod's name; the highest for a pod that somebody else gave its name."""
        digits = self.name.rpartition("-")[2]
        return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS else 10**_DIGITS


def current_scheduler(pods: Iterable[Pod]) -> Pod | None:
    """Of a cluster's `pods` the live scheduler, the oldest should there be several."""
    live = (pod for pod in pods if not pod.pool and pod.live)
    return min(live, key=lambda pod: (pod.created, pod.name), default=None)


def on_operator_clock(
    pod: Pod, before: Pod | None, *, now: float, server_ahead: float = 0.0, since: float = 0.0
) -> Pod:
    """`pod`, read just now, with its times on the operator's clock.

    `before`: as it was after the last such call, if there was one. `server_ahead`: as `Clocks`'. `since`: when the
    pods were last known; 0.0: never. What is new happened after that.
    """
    ended_at = pod.ended.at if pod.ended is not None else 0.0
    drains_at = pod.retirement.at if pod.retirement is not None else 0.0
    stamps = (pod.created, pod.placed, pod.started, ended_at, drains_at)
    if before is not None and before.stamps:
        known_ended = before.ended.at if before.ended is not None else 0.0
        known_drains = before.retirement.at if before.retirement is not None else 0.0
        known = (before.created, before.placed, before.started, known_ended, known_drains)
        created = before.created
        told = [local if stamp == old else None for local, stamp, old in zip(known, stamps, before.stamps, strict=True)]
    else:
        created = _local_time(pod.created, server_ahead, since, now)
        told = [None] * len(stamps)
    since = max(since, created)
    _, placed, started, ended, drains = (
        local if local is not None else of(stamp, server_ahead, since, now)
        for local, stamp, of in zip(told, stamps, _LOCAL_TIMES, strict=True)
    )
    return replace(
        pod,
        created=created,
        placed=placed,
        started=started,
        ended=replace(pod.ended, at=ended) if pod.ended is not None else None,
        retirement=replace(pod.retirement, at=drains) if pod.retirement is not None else None,
        delete_by=_delete_by(pod, before, now),
        finished_at=_finished_at(pod, before, now, _moment(pod.finished_at, server_ahead, max(since, placed), now)),
        removed_at=_removed_at(pod, before, _moment(pod.delete_by, server_ahead, max(since, placed), now)),
        stamps=stamps,
    )


def _local_time(stamp: float, server_ahead: float, since: float, now: float) -> float:
    """The time `stamp` on the operator's clock, as far as it can be true; 0.0, which is none, stays."""
    return max(min(stamp - server_ahead, now), since) if stamp else 0.0


def _moment(stamp: float, server_ahead: float, since: float, now: float) -> float:
    """When happened what has the `stamp`, as likely as can be told, on the operator's clock; 0.0, which is none, stays.

    GPU-seconds are counted from and to it, and a stamp has whole seconds: it happened at some time of that second. What
    is told within it has just happened; what comes later, in its middle. That may be sooner than what was told last
    (`since`), as a watch may be behind; by more than that could make it, the clock that stamped is wrong.
    """
    if not stamp:
        return 0.0
    first = stamp - server_ahead
    last, middle = first + _STAMP_SECONDS, first + _STAMP_SECONDS / 2
    if now <= last:
        return now if since else min(middle, now)
    if since <= last or since - last > _BEHIND_SECONDS:
        return max(middle, since)
    return middle


# Of `Pod.stamps`, each in its turn.
_LOCAL_TIMES = (_local_time, _moment, _local_time, _local_time, _local_time)


def _finished_at(pod: Pod, before: Pod | None, now: float, stamp: float) -> float:
    """When a pod ended for good, which stays as it was first known; `stamp`: on the operator's clock, 0.0 for none."""
    if not pod.finished:
        return 0.0
    return before.finished_at if before is not None and before.finished_at else stamp or now


def _removed_at(pod: Pod, before: Pod | None, stamp: float) -> float:
    """When a pod was removed, as it was first known; `stamp`: its deletion's, on the operator's clock.

    Where no grace is left the API server stamps the deletion with the time at which it removes the pod, and tells that
    just before it tells of its end. A finalizer puts the end off.
    """
    if not pod.deleting or pod.grace_seconds or pod.finalizers:
        return 0.0
    return before.removed_at if before is not None and before.removed_at else stamp


def _delete_by(pod: Pod, before: Pod | None, now: float) -> float:
    """The end of a deleted pod's grace period, from when its deletion was first seen; 0.0: it is not deleted.

    Not when its stamp says: whatever clock is wrong, its successor comes too late rather than beside it.
    """
    if not pod.deleting:
        return 0.0
    asked = before.delete_by - before.grace_seconds if before is not None and before.deleting else now
    return asked + pod.grace_seconds
