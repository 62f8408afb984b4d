"""The objects of a manifest that no operator has seen yet. Pure; what is unknown is a placeholder."""

from __future__ import annotations

from typing import Any

from gpudask.api.pool import Pool
from gpudask.api.resource import Cluster
from gpudask.desired import disruption, names, network, preload
from gpudask.desired.scheduler import scheduler_pod, services, told
from gpudask.desired.workers import worker_pod
from gpudask.planning.sizes import active_override

Json = dict[str, Any]
PLACEHOLDER_UID = "00000000-0000-0000-0000-000000000000"
PLACEHOLDER_TOKEN = "the-operator-writes-a-token-here"  # noqa: S105 - no secret
PLACEHOLDER_NAMESPACE = "gpudask-system"
PLACEHOLDER_NONCE = "xxxxx"


def objects(cluster: Cluster, files: dict[str, bytes], *, now: float = 0.0, one_of_each: bool = False) -> list[Json]:
    """What the operator would make of `cluster` in its first pass.

    Args:
        cluster: a parsed manifest, with any uid.
        files: what runs inside the scheduler, name -> bytes.
        now: seconds since 1970: an override that has ended by then sets nothing. Without it, none has ended.
        one_of_each: one worker pod a pool instead of as many as at the start.
    """
    scheduler = names.scheduler_pod(cluster.name, cluster.uid, frozenset())
    beside = [
        *services(cluster),
        preload.preload(cluster.namespace, files, [cluster.shared_reference]),
        told(cluster, PLACEHOLDER_TOKEN),
        disruption.budget(cluster, guarded=True),
        network.policy(cluster, PLACEHOLDER_NAMESPACE),
    ]
    if cluster.spec.suspend and not one_of_each:
        return beside
    workers = [
        worker_pod(cluster, pool, number, PLACEHOLDER_NONCE)
        for pool in cluster.spec.pools
        for number in range(1 if one_of_each else initial_size(cluster, pool, now))
    ]
    return [*beside, scheduler_pod(cluster, scheduler, preload.name(files)), *workers]


def initial_size(cluster: Cluster, pool: Pool, now: float) -> int:
    """Pods of `pool` before there is any demand: an override's, the fixed number, or the least."""
    override = active_override(cluster.spec.overrides, pool.name, now)
    if override is not None:
        return (override.min or 0) if override.replicas is None else override.replicas
    if pool.autoscale is not None:
        return pool.autoscale.min
    return 1 if pool.replicas is None else pool.replicas
