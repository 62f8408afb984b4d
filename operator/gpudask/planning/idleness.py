"""Whether nobody uses a cluster, and whether it is to be deleted for that: `idle.deleteAfter` (docs/adr/0023)."""

from __future__ import annotations

from gpudask.planning.observed import Observation


def idle_seconds(seen: Observation) -> float | None:
    """For how long the scheduler has had nothing to do by now; None where nobody knows: then nothing is deleted."""
    demand = seen.demand
    if demand is None or demand.idle_seconds is None or not seen.counts:
        return None
    works = any(item.waiting or item.active for item in demand.requirements)
    if works or any("actor" in worker.blockers for worker in demand.workers):
        return 0.0
    return demand.idle_seconds + max(0.0, seen.now - seen.demand_at)


def why_delete(seen: Observation) -> str:
    """Why the cluster is to be deleted now; empty where it stays. One that is suspended was put aside to be kept."""
    idle = seen.cluster.spec.idle
    unused = idle_seconds(seen)
    if idle.delete_after_seconds is None or unused is None or seen.cluster.spec.suspend:
        return ""
    if unused < idle.delete_after_seconds:
        return ""
    return f"its scheduler has had nothing to do for {unused:.0f} s, and spec.idle.deleteAfter is {idle.delete_after}"


def idle_wake_after(seen: Observation) -> float | None:
    """In how many seconds at the soonest the cluster may be deleted; None: never, or now."""
    limit, unused = seen.cluster.spec.idle.delete_after_seconds, idle_seconds(seen)
    if limit is None or unused is None or unused >= limit or seen.cluster.spec.suspend:
        return None
    return limit - unused
