"""Would the API server take the pods of a template that no pod was made from yet?"""

from __future__ import annotations

from functools import partial

from gpudask.api.resource import Cluster
from gpudask.desired import spec_hash, workers
from gpudask.planning.actions import Plan
from gpudask.reconcile.context import Context
from gpudask.reconcile.execute import Executor


class Trials:
    """Each template is tried once, until the cluster's next edit."""

    def __init__(self, context: Context, executor: Executor) -> None:
        self._context = context
        self._executor = executor
        self._tried: set[str] = set()

    def forget(self) -> None:
        """The cluster was edited."""
        self._tried.clear()

    async def make(self, cluster: Cluster, planned: Plan) -> None:
        """Try the templates of pools that have no pod now and get none.

        Raises:
            ApiError: the API server could not be reached, or failed.
        """
        made = {(pod.pool, pod.spec_hash) for pod in self._context.pods_of(cluster)}
        for pool in cluster.spec.pools:
            template = spec_hash.of_worker(cluster.spec, pool)
            digest = f"{pool.name}/{template}"
            if digest in self._tried or (pool.name, template) in made or planned.pools[pool.name].size.pods:
                continue
            await self._executor.try_out(pool.name, partial(workers.worker_pod, cluster, pool, 0, "trial"))
            self._tried.add(digest)
