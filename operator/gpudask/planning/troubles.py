"""What keeps a pool from what it should be, the most pressing first: for the condition Degraded."""

from __future__ import annotations

from collections.abc import Iterable

from gpudask.api import addresses
from gpudask.api.status import PoolStatus, Reason
from gpudask.planning import drains, replacing
from gpudask.planning.last_words import last_words
from gpudask.planning.observed import Failure, Observation, Pod, PoolMemory
from gpudask.planning.times import iso

# A container that came back this often without staying up is not merely starting.
_CRASHING_RESTARTS = 2
# A pod that runs this long without its worker being registered is in trouble.
_SILENT_SECONDS = 120.0
# So long after a new scheduler's start workers may still end because its name led nowhere.
_SETTLED_SECONDS = 60.0

# So long after a pod's deletion is due its finalizers are told: whoever set them usually takes them off in seconds.
_TERMINATING_SECONDS = 60.0

Trouble = tuple[Reason, str]


def trouble(seen: Observation, pool: PoolStatus) -> Trouble | None:
    """The trouble of `pool`, None where there is none."""
    memory = seen.memory.get(pool.name)
    if memory and memory.refusal:
        return Reason(memory.refusal_reason), refusal_of(seen, memory)
    if pool.unschedulable:
        return Reason.UNSCHEDULABLE, pool.message
    pods = [pod for pod in seen.workers(pool.name) if pod.live]
    for look in (_worker_waits, _unregistered):
        for pod in pods:
            if (found := look(seen, pod)) is not None:
                return found
    return _sick(seen, pool, pods) or _draining(seen, pool, pods) or stays_deleted(seen, seen.workers(pool.name))


def stays_deleted(seen: Observation, pods: Iterable[Pod]) -> Trouble | None:
    """Which of `pods` should be gone, and who keeps it; another pod has taken its place meanwhile."""
    for pod in pods:
        if pod.deleting and pod.finalizers and seen.now - pod.delete_by >= _TERMINATING_SECONDS:
            held = ", ".join(pod.finalizers)
            advice = "whoever set them has to take them off"
            return Reason.TERMINATING, f"{pod.name} is deleted, but its finalizers keep it: {held}: {advice}"
    return None


def stays_deleted_after(seen: Observation) -> float | None:
    """In how many seconds the next deleted pod is kept for so long that it is told."""
    moments = (p.delete_by + _TERMINATING_SECONDS - seen.now for p in seen.pods if p.deleting and p.finalizers)
    return min((moment for moment in moments if moment > 0), default=None)


def refusal_of(seen: Observation, memory: PoolMemory) -> str:
    """What the API server refuses, since when, and when it is asked again; empty where it refuses nothing."""
    if not memory.refused_since:
        return memory.refusal
    again = f", next try at {iso(memory.not_before, to='seconds')}" if memory.not_before > seen.now else ""
    return f"{memory.refusal}; since {iso(memory.refused_since, to='seconds')}{again}"


def failure_of(failure: Failure) -> str:
    """What fails, since when, and when it is tried again."""
    since, next_try = iso(failure.since, to="seconds"), iso(failure.next_try, to="seconds")
    return f"{failure.what}: {failure.message}; since {since}, next try at {next_try}"


def trouble_of_scheduler(seen: Observation) -> Trouble | None:
    """Why the scheduler does not stay up, None where it does, or merely starts."""
    pod = seen.scheduler
    found = _waiting(seen, pod) if pod is not None else None
    return found if found is not None and found[0] == Reason.CRASHING else None


def _worker_waits(seen: Observation, pod: Pod) -> Trouble | None:
    found = _waiting(seen, pod)
    if found is None or found[0] != Reason.CRASHING or not addresses.needs_headless(seen.cluster.spec.protocol):
        return found
    # UCX does not look for a name again: its workers end, and find the new scheduler when they have started again.
    head = seen.scheduler
    return found if head is not None and head.running and seen.now - head.started >= _SETTLED_SECONDS else None


def _waiting(seen: Observation, pod: Pod) -> Trouble | None:
    """Why the container of `pod` waits, if that is more than a start."""
    if not pod.waiting:
        return None
    if "Image" in pod.waiting:
        return Reason.IMAGE, f"{pod.name}: {pod.waiting}"
    if pod.restarts >= _CRASHING_RESTARTS:
        return Reason.CRASHING, f"{pod.name}: {pod.waiting}{last_words(seen.cluster.spec, pod)}"
    if not pod.waiting.startswith("CrashLoopBackOff"):
        return Reason.CRASHING, f"{pod.name}: {pod.waiting}"
    return None


def _unregistered(seen: Observation, pod: Pod) -> Trouble | None:
    unheard = seen.counts and pod.running and not seen.registered(pod)
    if unheard and seen.unheard_seconds(pod) >= _SILENT_SECONDS:
        return Reason.UNREGISTERED, f"{pod.name} runs, but the scheduler does not know its worker: see its log"
    return None


def _sick(seen: Observation, pool: PoolStatus, pods: list[Pod]) -> Trouble | None:
    section = next((item for item in seen.cluster.spec.pools if item.name == pool.name), None)
    if section is None:
        return None
    for pod in pods:
        if why := replacing.sickness(seen, section, pod):
            return Reason.DEVICE_SICK, f"{pod.name}: {why}"
    return None


def _draining(seen: Observation, pool: PoolStatus, pods: list[Pod]) -> Trouble | None:
    workers = [worker for pod in seen.workers(pool.name) for worker in seen.registered(pod)]
    if any(worker.retiring == "blocked" for worker in workers):
        return Reason.DRAIN_BLOCKED, pool.held or "a drain waits"
    if any(drains.hangs(seen, pod) for pod in pods):
        return Reason.DRAIN_HANGS, pool.leaving
    return None
