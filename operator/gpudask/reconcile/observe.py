"""Everything that a pass decides from, put together: the caches' pods, what the scheduler said, what is remembered."""

from __future__ import annotations

from dataclasses import replace

from gpudask.api.resource import Cluster
from gpudask.desired import spec_hash
from gpudask.planning.observed.observation import Failure, Observation
from gpudask.planning.observed.pods import current_scheduler
from gpudask.planning.scheduler import in_force
from gpudask.reconcile.context import Context
from gpudask.reconcile.demand_feed import DemandFeed
from gpudask.reconcile.memory import Memory


def observe(
    context: Context,
    cluster: Cluster,
    feed: DemandFeed,
    memory: Memory,
    *,
    failures: tuple[Failure, ...],
    mirror_refusal: str | None,
    network_refusal: str | None,
) -> Observation:
    """`cluster` as it is now; the feed listens to the scheduler that is there from now on.

    Nothing is asked of a server. Of the spec it has what is in force (`planning.scheduler.in_force`).
    `failures`: as `Retries.failures`. `mirror_refusal`: as `Mirror.refusal`. `network_refusal`: as
    `Observation.network`.
    """
    pods, now = context.pods_of(cluster), context.clock()
    scheduler = current_scheduler(pods)
    feed.listen_to(scheduler)
    feed.forget_workers_but_of(pod.dask_name for pod in pods)
    written, spec = cluster.spec, in_force(cluster.spec, scheduler)
    if spec is not written:
        cluster = replace(cluster, spec=spec)
    return Observation(
        cluster,
        pods,
        now,
        demand=feed.demand,
        demand_at=feed.heard_at,
        demand_problem=feed.problem,
        deaf=feed.deaf,
        failures=failures,
        scheduler_since=feed.scheduler_since,
        refused=feed.refused,
        joined=feed.joined,
        first_joined=feed.first_joined,
        memory=dict(memory.pools),
        busy_at=memory.busy_at,
        frozen_at=memory.frozen_at,
        known_starts=_known_starts(context, cluster, now),
        mirror=mirror_refusal,
        network=network_refusal,
        server_ahead=context.server_ahead(),
        wall_ahead=context.wall_ahead(),
        wanted=written,
    )


def _known_starts(context: Context, cluster: Cluster, now: float) -> dict[str, float]:
    known = {
        pool.name: context.starts.recall(spec_hash.of_worker(cluster.spec, pool), now) for pool in cluster.spec.pools
    }
    return {pool: seconds for pool, seconds in known.items() if seconds is not None}
