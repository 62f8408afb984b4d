"""When time alone changes what a pool needs: the pass that is to come though nothing happens."""

from __future__ import annotations

from gpudask.api.pool import Pool
from gpudask.planning import drains, freezes, nodes, sizes
from gpudask.planning.observed import Observation, Pod, PoolMemory
from gpudask.scaling.assignment import Share
from gpudask.scaling.sizing import Size

# A new pod that the room of one old pod does not help within this time gets the room of the next.
STUCK_SECONDS = 60.0


def wake_after(seen: Observation, pool: Pool, size: Size, share: Share, *, frozen: bool) -> float | None:
    """In how many seconds at the latest `pool` is to be looked at again; None: when something happens."""
    not_before = seen.memory.get(pool.name, PoolMemory()).not_before
    moments = [not_before - seen.now, sizes.look_ahead_after(seen, pool, share) or 0.0]
    moments += nodes.late_in(seen, pool.name)
    if frozen:
        moments += freezes.freeze_moments(seen, pool)
    override = sizes.active_override(seen.cluster.spec.overrides, pool.name, seen.wall_time)
    if override is not None and override.until is not None:
        moments.append(override.until.timestamp() - seen.wall_time)
    for pod in seen.workers(pool.name):
        if pod.live:
            moments += _of_pod(seen, pool, size, pod)
    return min((moment for moment in moments if moment > 0), default=None)


def _of_pod(seen: Observation, pool: Pool, size: Size, pod: Pod) -> list[float]:
    moments = [*drains.drain_moments(seen, pool, pod), *_of_its_rest(seen, pool, size, pod)]
    if pool.autoscale is not None:
        moments.append(seen.trial_seconds(pod))
    if pod.unschedulable:
        moments.append(pod.created + STUCK_SECONDS - seen.now)
    if sizes.ran(pod) and seen.demand is not None and not seen.registered(pod):
        moments.append(sizes.UNREGISTERED_SECONDS - seen.unheard_seconds(pod))
    return moments


def _of_its_rest(seen: Observation, pool: Pool, size: Size, pod: Pod) -> list[float]:
    """When a pod at rest has rested long enough to leave, or for its results to be let go."""
    candidate = sizes.candidate(seen, pod, 0)
    if candidate.busy:
        return []
    limits, moments = pool.autoscale, []
    if limits is not None and size.set_by == "autoscale" and size.pods > limits.min and pod.retirement is None:
        moments.append(limits.idle_timeout_seconds - candidate.idle_seconds)
    if pool.held_data is not None:
        moments.append(pool.held_data.release_after_seconds - candidate.idle_seconds)
    return moments
