"""How many pods each pool can have now: its maximum, or fewer where further ones find no node or are refused."""

from __future__ import annotations

from gpudask.api.pool import Pool
from gpudask.api.status import Reason
from gpudask.planning import nodes, sizes, starts
from gpudask.planning.observed import Observation, PoolMemory
from gpudask.scaling.assignment import Capacity as Room

_REFUSALS = (Reason.QUOTA, Reason.FORBIDDEN, Reason.TEMPLATE_REFUSED)


def rooms(seen: Observation) -> dict[str, Room]:
    """The room of each pool of the spec."""
    return {pool.name: _room(seen, pool) for pool in seen.cluster.spec.pools}


def _room(seen: Observation, pool: Pool) -> Room:
    pods = sizes.staying(seen, pool)
    most = _most(seen, pool)
    if _is_refused(seen, pool):
        most = min(most, len(pods))
    if nodes.is_any_late(seen, pool.name):
        most = min(most, sum(1 for pod in pods if not pod.unschedulable))
    tried = sum(1 for pod in pods if seen.registered(pod) and not seen.trial_seconds(pod))
    return Room(pods=float(most), all_tried=tried >= most, start_seconds=starts.start_seconds(seen, pool.name))


def _most(seen: Observation, pool: Pool) -> int:
    override = sizes.active_override(seen.cluster.spec.overrides, pool.name, seen.now)
    if override is not None and override.replicas is not None:
        return override.replicas
    if pool.autoscale is not None:
        return pool.autoscale.max
    return 1 if pool.replicas is None else pool.replicas


def _is_refused(seen: Observation, pool: Pool) -> bool:
    memory = seen.memory.get(pool.name, PoolMemory())
    return bool(memory.refusal) and memory.refusal_reason in _REFUSALS
