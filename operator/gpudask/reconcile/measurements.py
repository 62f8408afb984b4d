"""Measurements of one cluster's passes, for the metrics: what is exported of it, and what happened since the last pass.

They read what a pass has found and decided, and change nothing of it.
"""

from __future__ import annotations

from gpudask.api import attribution
from gpudask.api.pool import Pool
from gpudask.api.resource import owner_key
from gpudask.api.spec import Override
from gpudask.api.status import Status
from gpudask.metrics.clusters import ClusterMetrics, Report
from gpudask.metrics.families import TERMINATIONS
from gpudask.metrics.pools import PoolLimits
from gpudask.planning import overrides
from gpudask.planning.actions import DeletePod, Plan
from gpudask.planning.first_demand import FirstDemand, advance
from gpudask.planning.observed.observation import Observation
from gpudask.planning.observed.pods import Pod
from gpudask.reconcile.context import Context
from gpudask.reconcile.demand_feed import DemandFeed
from gpudask.reconcile.resource_copy import ResourceCopy
from gpudask.scaling.assignment import Share

# Of one pod between two passes: a restart count is the kubelet's, but anybody who may write pods' status can set it.
_RESTARTS_COUNTED = 100


class Measurements:
    """Measures the passes of one cluster."""

    def __init__(self, context: Context, copy: ResourceCopy, feed: DemandFeed) -> None:
        self._context = context
        self._copy = copy
        metadata = copy.body["metadata"]
        self._key = owner_key(metadata["namespace"], metadata["uid"])
        self._metrics = context.metrics
        self._cluster = ClusterMetrics(metadata["namespace"], metadata["name"], feed=feed.state)
        self._first_demand: dict[str, FirstDemand] = {}  # by pool: one that waits
        self._restarts: dict[str, int] | None = None  # by pod's uid: terminations so far; None: no pass was made yet
        self._draining_bytes: dict[str, int] = {}  # by worker's name: what it held while it drained
        self._last: Report | None = None

    def stop(self) -> None:
        """Export the cluster no more."""
        self._metrics.forget(self._key)

    def planned(self, observation: Observation, plan: Plan) -> None:
        """Measure how long first demands have waited, before the plan's pods exist, or after."""
        for pool in observation.cluster.spec.pools:
            share = plan.assignment.shares.get(pool.name, Share())
            progress = advance(observation, pool.name, share, self._first_demand.pop(pool.name, None))
            if progress.waiting is not None:
                self._first_demand[pool.name] = progress.waiting
            for step, seconds in progress.steps:
                self._metrics.record_start(step, seconds, has_gpus=pool.gpu is not None)

    def deleted(self, action: DeletePod) -> None:
        """Count a pod that the operator has deleted."""
        pod = action.pod
        if not pod.pool:
            return
        counts = self._cluster.pool(pod.pool)
        counts.forced_deletions += action.forced
        if pod.leaves and pod.running:
            counts.drains += 1
            if pod.retirement is not None and pod.retirement.at:
                self._metrics.drain_seconds.observe(max(0.0, self._context.clock() - pod.retirement.at))

    def passed(self, observation: Observation, plan: Plan, status: Status) -> None:
        """Export the cluster as it is after a pass."""
        self.planned(observation, plan)
        self._count_terminations(observation)
        self._count_moved_bytes(observation)
        unservable = sum(requirement.active for requirement in plan.assignment.unserved)
        spec = overrides.in_force(observation).observation.cluster.spec
        by_pool = {override.pool: override for override in spec.overrides}
        drains: dict[str, float] = {}
        for pod in observation.pods:
            if pod.leaves and pod.retirement is not None and pod.retirement.at:
                drains[pod.pool] = min(pod.retirement.at, drains.get(pod.pool, pod.retirement.at))
        limits = {pool.name: _limits(pool, by_pool.get(pool.name)) for pool in spec.pools}
        self._report(Report(status, observation.now, limits, unservable, drains))

    def not_passed(self, status: Status) -> None:
        """Export the status of a cluster of which no pass can be made; of its pools, what was last known."""
        before = self._last
        limits = before.limits if before is not None else {}
        self._report(Report(status, self._context.clock(), limits))

    def _report(self, report: Report) -> None:
        if self._last is not None:
            self._count_since(self._last, report)
        self._last = report
        self._cluster.attribute(attribution.read(self._copy.body["metadata"], self._context.attribution))
        self._cluster.set_report(report)
        self._metrics.keep(self._key, self._cluster)

    def _count_since(self, before: Report, now: Report) -> None:
        elapsed = max(0.0, now.at - before.at)
        earlier = {pool.name: pool for pool in before.status.pools}
        for pool in now.status.pools:
            if (known := earlier.get(pool.name)) is not None:
                counts = self._cluster.pool(pool.name)
                counts.unschedulable_pod_seconds += known.unschedulable * elapsed
                counts.fallbacks += bool(pool.fallback) and not known.fallback

    def _count_terminations(self, observation: Observation) -> None:
        """Count what ended since the last pass, but for pods whose deletion was asked for.

        What had ended before the first pass of this loop, an operator before this one has counted.
        """
        before = self._restarts
        self._restarts = {pod.uid: _terminations(pod) for pod in observation.pods if pod.pool}
        if before is None:
            return
        for pod in observation.pods:
            new = self._restarts.get(pod.uid, 0) - before.get(pod.uid, 0)
            if new > 0 and pod.ended is not None and not pod.deleting:
                reason = pod.ended.reason if pod.ended.reason in TERMINATIONS else "Other"
                self._cluster.pool(pod.pool).terminations[reason] += min(new, _RESTARTS_COUNTED)

    def _count_moved_bytes(self, observation: Observation) -> None:
        """Count by how much draining workers became lighter: what they hold goes to others, if it is not released."""
        held: dict[str, int] = {}
        for pod in observation.pods:
            if pod.leaves and pod.retirement is not None and not pod.retirement.release:
                held |= {worker.name: worker.held_bytes for worker in observation.registered(pod)}
        moved = sum(max(0, self._draining_bytes.get(name, 0) - now) for name, now in held.items())
        self._metrics.drain_moved_bytes.inc(moved)
        self._draining_bytes = held


def _terminations(pod: Pod) -> int:
    """How often a pod's container, or the pod, has ended: it may be starting again, or be gone for good."""
    return pod.restarts + (pod.ended is not None and not pod.running)


def _limits(pool: Pool, override: Override | None) -> PoolLimits:
    """The limits of a pool to which the limits of its override have been applied."""
    size = override.replicas if override is not None and override.replicas is not None else pool.replicas
    low = high = 1 if size is None else size
    if size is None and pool.autoscale is not None:
        low, high = pool.autoscale.min, pool.autoscale.max
    return PoolLimits(low, high, has_gpus=pool.gpu is not None, has_fallback=pool.fallback is not None)
