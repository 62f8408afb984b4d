"""Events: the changes between two statuses that are worth a message, with the reasons."""

from __future__ import annotations

import re

from gpudask.api.reasons import ConditionType, Reason
from gpudask.api.status import Condition, PoolStatus, SchedulerStatus, Status
from gpudask.planning.actions import Event

# A condition whose status became this is worth a warning.
_WARNINGS: dict[str, str] = {
    ConditionType.DEGRADED: "True",
    ConditionType.ACCEPTED: "False",
    ConditionType.DEMAND_SERVABLE: "False",
    ConditionType.MIRRORED: "False",
    ConditionType.LEASED: "False",
}


def events(before: Status, after: Status) -> list[Event]:
    """The events to record once `after` was written."""
    earlier_pools = {pool.name: pool for pool in before.pools}
    return [
        *_scheduler_restarted(before.scheduler, after.scheduler),
        *(a for pool in after.pools for a in _scaled(earlier_pools.get(pool.name), pool)),
        *(a for pool in after.pools for a in _fell_back(earlier_pools.get(pool.name), pool)),
        *(a for pool in after.pools for a in _lost(earlier_pools.get(pool.name), pool)),
        *_conditions(before, after),
    ]


def _scheduler_restarted(before: SchedulerStatus, after: SchedulerStatus) -> list[Event]:
    if not after.lost or after.lost == before.lost:
        return []
    knew = after.lost.partition(": ")[2]
    why = f"the scheduler's process ended, and what it knew is lost: {knew} with their results, as last heard"
    return [Event(Reason.SCHEDULER_RESTARTED, why, series=after.lost, warning=True)]


def _scaled(before: PoolStatus | None, after: PoolStatus) -> list[Event]:
    was = before.desired if before else 0
    if after.desired == was:
        return []
    up = after.desired > was
    why = f"pool {after.name}: {was} -> {after.desired} pods ({after.size_set_by}): {after.reason}"
    reason = Reason.SCALED_UP if up else Reason.SCALED_DOWN
    return [Event(reason, why, series=f"{after.name} {was} {after.desired}")]


def _lost(before: PoolStatus | None, after: PoolStatus) -> list[Event]:
    """Pods that were replaced for their own sake, or deleted with what they held."""
    found = []
    if after.replaced and (before is None or before.replaced != after.replaced):
        why = f"pool {after.name}: {after.replaced}"
        found.append(Event(Reason.POD_REPLACED, why, series=f"{after.name} replaced {after.replaced}"))
    if after.forced and (before is None or before.forced != after.forced):
        why = f"pool {after.name}: deleted though not drained: {after.forced}"
        found.append(Event(Reason.DRAIN_FORCED, why, series=f"{after.name} forced {after.forced}", warning=True))
    return found


def _fell_back(before: PoolStatus | None, after: PoolStatus) -> list[Event]:
    was = before.fallback if before else ""
    if after.fallback == was:
        return []
    if after.fallback:
        why = f"pool {after.name}: no worker is ready, its tasks run on pool {after.fallback} meanwhile"
        return [Event(Reason.FALLBACK_STARTED, why, series=f"{after.name} falls back", warning=True)]
    why = f"pool {after.name}: its tasks run on it again, or there are none; what has begun on pool {was} ends there"
    return [Event(Reason.FALLBACK_ENDED, why, series=f"{after.name} returns")]


def _conditions(before: Status, after: Status) -> list[Event]:
    earlier = {condition.type: condition for condition in before.conditions}
    found = []
    for condition in after.conditions:
        old = earlier.get(condition.type)
        if old is not None and _same(old, condition):
            continue
        if _WARNINGS.get(condition.type) == condition.status:
            series = condition.message if condition.type == ConditionType.ACCEPTED else _series(condition.message)
            found.append(Event(condition.reason, condition.message, series, warning=True))
        elif condition.type == ConditionType.READY and _is_news(old, condition):
            message = condition.message or "the cluster is ready"
            if message not in {item.message for item in found}:  # a spec that is refused is why it is not ready
                found.append(Event(condition.reason, message, _series(message)))
    return found


def _is_news(old: Condition | None, ready: Condition) -> bool:
    """True if a change of Ready is worth an event: that a new cluster is not ready yet is none."""
    return ready.status == "True" if old is None else old.status != ready.status


def _same(old: Condition, new: Condition) -> bool:
    """True if there is no news. What is wrong with a spec is reported each time that it is something else."""
    told = old.message == new.message or new.type != ConditionType.ACCEPTED
    return (old.status, old.reason) == (new.status, new.reason) and told


def _series(message: str) -> str:
    """`message` without its numbers: one that differs in a count only is the same again."""
    return re.sub(r"\d+", "#", message)
