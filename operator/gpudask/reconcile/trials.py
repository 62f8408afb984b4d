"""Would the API server take the pods of a template that no pod was made from yet?"""

from __future__ import annotations

from functools import partial

from gpudask.api.pool import Pool
from gpudask.api.resource import Cluster
from gpudask.api.status import Reason
from gpudask.desired import spec_hash, workers
from gpudask.planning.actions import Plan
from gpudask.reconcile.context import Context
from gpudask.reconcile.execute import Executor
from gpudask.reconcile.retries import Work


class Trials:
    """Each template is tried until it was answered, and again while it is refused, or after the cluster's next edit."""

    def __init__(self, context: Context, executor: Executor) -> None:
        self._context = context
        self._executor = executor
        self._tried: set[str] = set()

    def forget(self) -> None:
        """The cluster was edited."""
        self._tried.clear()

    def work(self, cluster: Cluster, planned: Plan) -> dict[str, Work]:
        """How to try the templates of pools that have no pod now and get none; one that is refused, again at times."""
        made = {(pod.pool, pod.spec_hash) for pod in self._context.pods_of(cluster)}
        work: dict[str, Work] = {}
        for pool in cluster.spec.pools:
            template = spec_hash.of_worker(cluster.spec, pool)
            if (pool.name, template) in made or planned.pools[pool.name].size.pods:
                continue
            memory = self._executor.memory_of(pool.name)
            refused = memory.refusal_reason == Reason.TEMPLATE_REFUSED
            digest = f"{pool.name}/{template}"
            if digest not in self._tried or (refused and memory.not_before <= self._context.clock()):
                work[f"dry run of a pod of pool {pool.name}"] = partial(self._make, cluster, pool, digest)
        return work

    async def _make(self, cluster: Cluster, pool: Pool, digest: str) -> bool:
        await self._executor.try_out(pool.name, partial(workers.worker_pod, cluster, pool, 0, "trial"))
        self._tried.add(digest)
        return False
