"""How pods ended: from what was last seen of each, and from what the operator itself did, a reason and a moment.

A pod ends once: when it finished for good, or is gone. Its container may end before that, and is started again in it by
the kubelet; such an end is one of its own, known by the time that the kubelet stamped on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from gpudask.api.record import End
from gpudask.planning.actions import DeletePod, Plan
from gpudask.planning.observed.pods import Pod

# A pod that was to be gone so long ago is on a node that does not answer, or something holds it.
_OVERDUE_SECONDS = 10.0
_BY_DISRUPTION = {
    "PreemptionByScheduler": End.PREEMPTED,
    "DeletionByTaintManager": End.NODE_LOST,
    "DeletionByPodGC": End.NODE_LOST,
    "EvictionByEvictionAPI": End.EVICTED,
}
"""The reasons of the condition DisruptionTarget, but for the kubelet's, which says more in the pod's status.

https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
"""
_BY_STATUS = {
    "Evicted": End.EVICTED,
    "Preempting": End.PREEMPTED,
    "Preempted": End.PREEMPTED,
    "NodeLost": End.NODE_LOST,
    "NodeShutdown": End.NODE_SHUTDOWN,
    "Shutdown": End.NODE_SHUTDOWN,
    "Terminated": End.NODE_SHUTDOWN,
}
_ANSWER = {
    End.NODE_LOST: "no log: its node does not answer",
    End.CANCELLED: "no log: it never ran",
    End.DRAINED: "no log: it held nothing any more when the operator ended it",
}


class LogSource(Enum):
    """Where the last lines of an end's log are."""

    NONE = auto()  # nowhere, or not worth a request: `message` says why
    KNOWN = auto()  # in `log`: the kubelet kept them
    PREVIOUS = auto()  # with the container before the present one
    CURRENT = auto()  # with the pod's container, which is still there
    FOLLOWED = auto()  # in what was read while the pod ended


@dataclass(frozen=True, slots=True)
class PodEnd:
    """An end. `at`: seconds since the epoch, by the clock of whoever stamped it. `restarted`: as in the record.

    `held_seconds`: for how long it had held its GPUs by then, since it got its node.
    """

    pod: Pod
    at: float
    reason: str
    message: str = ""
    exit_code: int | None = None
    log: str = ""
    source: LogSource = LogSource.NONE
    restarted: bool = False
    held_seconds: float = 0.0

    @property
    def key(self) -> tuple[str, bool, int]:
        """What tells it from other ends: the pod's, or the time of the container's."""
        return self.pod.uid, self.restarted, int(self.at) if self.restarted else 0


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look brought: ends that are new, and pods that have begun to end, whose log is to be followed."""

    ends: tuple[PodEnd, ...] = ()
    ending: tuple[Pod, ...] = ()


@dataclass(slots=True)
class PodWatch:
    """The pods of one cluster, as last seen, and which of their ends are told.

    After a restart of the operator it tells those of present pods again, by the same keys.
    """

    _pods: dict[str, Pod] = field(default_factory=dict)
    _intended: dict[str, End] = field(default_factory=dict)  # uid -> what the operator itself did to it
    _told: dict[str, int] = field(default_factory=dict)  # uid -> the time of the container's end that was told
    _over: set[str] = field(default_factory=set)  # uids whose pod's end was told
    _ending: set[str] = field(default_factory=set)

    def intend(self, plan: Plan) -> None:
        """Note what the operator is about to delete, and why."""
        for action in plan.actions:
            if isinstance(action, DeletePod):
                self._intended[action.pod.uid] = _intention(action)

    def last_seen(self, pod: Pod) -> None:
        """Note a pod's last state, as the watch had it when the pod was gone."""
        if pod.uid in self._pods:
            self._pods[pod.uid] = pod

    @property
    def awaits(self) -> bool:
        """Whether there were pods at the last look whose end was not told."""
        return bool(self._pods.keys() - self._over)

    def leaving(self, now: float, *, ahead: float = 0.0) -> tuple[PodEnd, ...]:
        """The ends of the pods that outlive their cluster, as if they were gone now: what is known until they are.

        A look tells them again, by the same keys, once the pods have ended.
        """
        return tuple(
            gone_end(pod, now, ahead=ahead, intended=self._intended.get(uid), cluster_gone=True)
            for uid, pod in self._pods.items()
            if uid not in self._over
        )

    def look(self, pods: Iterable[Pod], now: float, *, ahead: float = 0.0, cluster_gone: bool = False) -> Seen:
        """Compare with what there is now.

        `now`: by the operator's clock. `ahead`: by how many seconds the API server's is ahead of it: what nobody
        stamped gets that time.
        """
        there = {pod.uid: pod for pod in pods}
        gone = [pod for uid, pod in self._pods.items() if uid not in there]
        known = self._pods
        for pod in there.values():
            if not pod.deleting and not pod.finished:
                self._intended.pop(pod.uid, None)  # its deletion was refused
        self._pods = there
        ends = [end for pod in there.values() for end in self._of_present(pod, now, ahead, cluster_gone=cluster_gone)]
        ends += [
            gone_end(pod, now, ahead=ahead, intended=self._intended.get(pod.uid), cluster_gone=cluster_gone)
            for pod in gone
            if pod.uid not in self._over
        ]
        for pod in gone:
            self._forget(pod.uid)
        ending = [pod for pod in there.values() if self._begins_to_end(pod, known)]
        self._ending |= {pod.uid for pod in ending}
        return Seen(tuple(ends), tuple(ending))

    def _of_present(self, pod: Pod, now: float, ahead: float, *, cluster_gone: bool) -> Iterable[PodEnd]:
        if pod.uid in self._over:
            return
        if pod.finished:
            self._over.add(pod.uid)
            deleted = _deletion(pod, self._intended.get(pod.uid), cluster_gone=cluster_gone) if pod.deleting else None
            yield finished_end(pod, now, ahead=ahead, deletion=deleted)
        elif pod.deleting:
            if now > pod.delete_by + _OVERDUE_SECONDS and pod.running:
                self._over.add(pod.uid)
                yield gone_end(pod, now, ahead=ahead, intended=self._intended.get(pod.uid), is_overdue=True)
        elif pod.ended is not None and int(pod.ended_stamp) > self._told.get(pod.uid, 0):
            self._told[pod.uid] = int(pod.ended_stamp)
            yield container_end(pod)

    def _begins_to_end(self, pod: Pod, known: Mapping[str, Pod]) -> bool:
        """True where a pod that runs is being deleted, and not by us once it held nothing."""
        if not pod.deleting or pod.uid in self._ending or pod.uid in self._over:
            return False
        if pod.uid not in known and not pod.running:
            return False
        return pod.ran and self._intended.get(pod.uid) not in (End.DRAINED, End.CANCELLED)

    def _forget(self, uid: str) -> None:
        self._over.discard(uid)
        self._ending.discard(uid)
        self._intended.pop(uid, None)
        self._told.pop(uid, None)


def container_end(pod: Pod) -> PodEnd:
    """The end of a container whose pod lives on."""
    assert pod.ended is not None
    source = LogSource.KNOWN if pod.ended.message else LogSource.PREVIOUS if pod.running else LogSource.CURRENT
    return PodEnd(
        pod,
        pod.ended_stamp or pod.ended.at,
        pod.ended.reason or "Error",
        exit_code=pod.ended.exit_code,
        log=pod.ended.message,
        source=source,
        restarted=True,
        held_seconds=_held_seconds(pod, pod.ended.at),
    )


def finished_end(pod: Pod, now: float, *, ahead: float = 0.0, deletion: End | None = None) -> PodEnd:
    """The end of a pod that will not run again, but is still there: evicted, deleted, or its node shut down.

    `deletion`: who deleted it; None: nobody did.
    """
    reason = _BY_DISRUPTION.get(pod.disruption) or _BY_STATUS.get(pod.status_reason) or deletion
    why = reason or (pod.ended.reason if pod.ended is not None else "") or pod.status_reason or pod.phase
    log, code = _own_words(pod)
    lost = why == End.NODE_LOST
    return PodEnd(
        pod,
        _stamp(pod, now + ahead),
        str(why),
        message=pod.status_message or (_ANSWER[End.NODE_LOST] if lost else ""),
        exit_code=code,
        log=log,
        source=LogSource.KNOWN if log else LogSource.CURRENT if pod.node and not lost else LogSource.NONE,
        held_seconds=_held_seconds(pod, _local(pod, now)),
    )


def gone_end(
    pod: Pod,
    now: float,
    *,
    ahead: float = 0.0,
    intended: End | None = None,
    cluster_gone: bool = False,
    is_overdue: bool = False,
) -> PodEnd:
    """The end of a pod that is gone, by the last that was seen of it; `is_overdue`: it is there, but should not be.

    `intended`: what the operator did to it. `cluster_gone`: its cluster is being deleted, and Kubernetes deletes it.
    """
    reason = _BY_DISRUPTION.get(pod.disruption) or intended
    if is_overdue and reason in (None, End.DRAINED):
        reason = End.NODE_LOST
    reason = reason or _deletion(pod, None, cluster_gone=cluster_gone)
    log, code = _own_words(pod)
    is_read = pod.ran and reason not in _ANSWER
    message = _ANSWER.get(reason, "" if pod.ran else _ANSWER[End.CANCELLED]) if not log else ""
    if is_overdue:
        message = f"it was to be gone some time ago, and its node does not confirm: {_ANSWER[End.NODE_LOST]}"
    return PodEnd(
        pod,
        _stamp(pod, now + ahead),
        str(reason),
        message=message,
        exit_code=code,
        log=log,
        source=LogSource.KNOWN if log else LogSource.FOLLOWED if is_read and not is_overdue else LogSource.NONE,
        held_seconds=_held_seconds(pod, _local(pod, now)),
    )


def _deletion(pod: Pod, intended: End | None, *, cluster_gone: bool) -> End:
    """Why a pod was deleted; `intended`, `cluster_gone`: as `gone_end`'s."""
    if intended is not None:
        return intended
    if pod.retirement is not None and pod.deleting:
        return End.DRAINED  # by an operator before this one
    return End.CLUSTER_DELETED if cluster_gone else End.DELETED


def with_log(end: PodEnd, log: str, why_none: str = "") -> PodEnd:
    """`end` with the log that was read, or with why there is none."""
    if log:
        return replace(end, log=log, source=LogSource.KNOWN)
    missing = why_none or "no log: it wrote none"
    return replace(end, message=f"{end.message}; {missing}" if end.message else missing, source=LogSource.NONE)


def _intention(action: DeletePod) -> End:
    pod = action.pod
    if action.forced:
        return End.FORCED
    if not pod.ran:
        return End.CANCELLED
    if action.successor:
        return End.REPLACED
    return End.DRAINED


def _own_words(pod: Pod) -> tuple[str, int | None]:
    """The log that the kubelet kept, and the exit code, of the container's last end; of a process that runs, none."""
    if pod.running or pod.ended is None or not pod.ended.is_container:
        return "", None
    return pod.ended.message, pod.ended.exit_code


def _stamp(pod: Pod, now: float) -> float:
    """When the pod ended: as the kubelet stamped it, where it did."""
    if not pod.running and pod.ended is not None and pod.ended_stamp:
        return pod.ended_stamp
    return now


def _local(pod: Pod, now: float) -> float:
    """Until when it held its GPUs."""
    if pod.finished_at:
        return pod.finished_at
    return pod.ended.at if not pod.running and pod.ended is not None and pod.ended.at else now


def _held_seconds(pod: Pod, until: float) -> float:
    return max(0.0, until - pod.placed) if pod.placed else 0.0
