"""Everything that a pass decides from, put together: the caches' pods, what the scheduler said, what is remembered."""

from __future__ import annotations

from gpudask.api.resource import Cluster
from gpudask.planning.observed import Observation, current_scheduler
from gpudask.reconcile.context import Context
from gpudask.reconcile.demand_feed import DemandFeed
from gpudask.reconcile.memory import Memory


def observe(
    context: Context, cluster: Cluster, feed: DemandFeed, memory: Memory, *, mirror_refusal: str | None
) -> Observation:
    """`cluster` as it is now; the feed listens to the scheduler that is there from now on.

    Nothing is asked of a server. `mirror_refusal`: as `Mirror.refusal`.
    """
    pods = context.pods_of(cluster.uid)
    feed.listen_to(current_scheduler(pods))
    feed.forget_workers_but_of(pod.dask_name for pod in pods)
    return Observation(
        cluster,
        pods,
        context.clock(),
        demand=feed.demand,
        demand_at=feed.heard_at,
        demand_problem=feed.problem,
        deaf=feed.deaf,
        support_refusal=memory.support,
        scheduler_since=feed.scheduler_since,
        refused=feed.refused,
        joined=feed.joined,
        first_joined=feed.first_joined,
        memory=dict(memory.pools),
        busy_at=memory.busy_at,
        frozen_at=memory.frozen_at,
        mirror=mirror_refusal,
    )
