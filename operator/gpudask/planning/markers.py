"""Which pods are guarded against eviction: those at work are at once, those at rest are no longer after a while.

At work is a pod whose own tasks run, or that holds what it cannot leave behind; the scheduler, while it knows any
task. So a stream of short tasks writes nothing: the pods are guarded when it begins, and until it has long ended.
"""

from __future__ import annotations

from gpudask.desired.disruption import EVICTION_ANNOTATIONS as MARKERS
from gpudask.desired.disruption import eviction_protection as markers
from gpudask.planning.actions import MarkGuarded
from gpudask.planning.observed import Observation, Pod

# How long a pod rests before it may be evicted.
REST_SECONDS = 30.0


def at_work(seen: Observation) -> frozenset[str]:
    """The uids of the pods that are at work now."""
    if seen.demand is None:
        return frozenset()
    found = {pod.uid for pod in seen.pods if pod.pool and _works(seen, pod)}
    if seen.scheduler is not None and seen.demand.tasks:
        found.add(seen.scheduler.uid)
    return frozenset(found)


def guarded(seen: Observation, pod: Pod) -> bool | None:
    """Whether `pod` is to be guarded; None: as it is, because it starts, or rests too short a time, or is not known."""
    rested = rested_seconds(seen, pod)
    if rested is None:
        return None
    if rested == 0.0:
        return True
    return False if rested >= REST_SECONDS else None


def rested_seconds(seen: Observation, pod: Pod) -> float | None:
    """For how long `pod` has not been at work, 0.0 while it is; None where that is not known."""
    if seen.demand is None or not seen.counts:
        return None
    if not pod.pool:
        idle = 0.0 if seen.demand.tasks else seen.now - seen.scheduler_since
    else:
        workers = seen.registered(pod)
        if not workers:
            return None
        idle = 0.0 if _works(seen, pod) else min(seen.idle_seconds(worker) for worker in workers)
    since = seen.busy_at.get(pod.uid)
    return idle if since is None else min(idle, seen.now - since)


def plan_markers(seen: Observation) -> tuple[MarkGuarded, ...]:
    """The pods that say something else to node autoscalers than they should. One that leaves says what it said."""
    spec = seen.cluster.spec
    pools = {pool.name: pool for pool in spec.pools}
    found = []
    for pod in seen.pods:
        if not pod.live or pod.retirement is not None or (pod.pool and pod.pool not in pools):
            continue
        verdict = guarded(seen, pod)
        if verdict is None:
            continue
        wanted = markers(spec, pools.get(pod.pool), guarded=verdict)
        said = dict(zip(MARKERS, pod.marks, strict=False))
        if any(said.get(name) != value for name, value in wanted.items()):
            found.append(MarkGuarded(pod, wanted))
    return tuple(found)


def markers_wake_after(seen: Observation) -> float | None:
    """When the next pod that rests will have rested long enough."""
    rests = [rested_seconds(seen, pod) for pod in seen.pods if pod.live and pod.retirement is None]
    return min((REST_SECONDS - rest for rest in rests if rest is not None and 0 < rest < REST_SECONDS), default=None)


def _works(seen: Observation, pod: Pod) -> bool:
    return any(worker.own or set(worker.blockers) - {"running"} for worker in seen.registered(pod))
