"""How a cluster manager looks, and what its pods wrote."""

# mypy: disallow-untyped-calls=False, disallow-any-generics=False
from __future__ import annotations

from typing import Any

from distributed.core import Status
from distributed.utils import Log, Logs

from gpudask.kubecluster import display
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.logs import pod_logs
from gpudask.kubecluster.manifest import JUPYTER
from gpudask.kubecluster.request import FORBIDDEN
from gpudask.kubecluster.sized import SizedCluster


class ShownCluster(SizedCluster):
    """What people read of a `KubeCluster`: its links, its logs, and its pools as text and as HTML."""

    @property
    def jupyter_link(self) -> str:
        """Jupyter's URL as this machine reaches it.

        Raises:
            KubeClusterError: the cluster has none.
        """
        scheduler = (self._body.get("spec") or {}).get("scheduler") or {}
        if JUPYTER not in scheduler.get("extraArgs", []):
            raise KubeClusterError(
                f"cluster {self.name!r} has no Jupyter",
                reason="its scheduler was not started with it",
                next_step="Create a cluster with jupyter=True",
            )
        return self.dashboard_link.removesuffix("/status") + "/jupyter/lab"

    def get_logs(
        self, cluster: bool = True, scheduler: bool = True, workers: Any = True, pool: str = "", tail: int | None = None
    ) -> Any:
        """The logs of the cluster's pods by pod name, as Kubernetes has them: those that crash included.

        Where the log of one pod cannot be read (it went meanwhile, its node is lost) its text says so.

        Args:
            cluster: what this object said.
            scheduler: the scheduler's.
            workers: the workers'.
            pool: only this pool's.
            tail: only that many lines of each from the end.

        Raises:
            KubeClusterError: the API server refuses, and nothing is connected.
        """
        return self.sync(self._get_logs, cluster=cluster, scheduler=scheduler, workers=workers, pool=pool, tail=tail)

    async def _get_logs(
        self, cluster: bool = True, scheduler: bool = True, workers: Any = True, pool: str = "", tail: int | None = None
    ) -> Any:
        try:
            logs = await self._logs_of_pods(
                scheduler=scheduler and not pool, workers=bool(workers), pool=pool, tail=tail
            )
        except KubeClusterError as error:
            is_unread = self._server is None or error.status == FORBIDDEN or error.may_pass
            if not is_unread or self.status != Status.running:
                raise
            # Without rights on pods, what the processes themselves remember.
            return await super()._get_logs(cluster=cluster, scheduler=scheduler, workers=workers)
        if cluster and not pool:
            logs["Cluster"] = Log("\n".join(line for _, line in self._cluster_manager_logs))
        return logs

    async def _logs_of_pods(self, *, scheduler: bool, workers: bool, pool: str, tail: int | None) -> Logs:
        if not (scheduler or workers):
            return Logs()
        component = "" if scheduler and workers else "worker" if workers else "scheduler"
        return await pod_logs(self.require_server(), self.name, component=component, pool=pool, tail=tail)

    def __repr__(self) -> str:
        pools = display.as_text(display.pool_rows(self._body, self.scheduler_info["workers"]))
        address = self.scheduler_address
        return f"{type(self).__name__}({self.name}, {address!r}, {pools or 'not started'})"

    def _scaling_status(self) -> str:
        """What the widget says beside its status: the base's words know no pools, and call every cluster's manual."""
        return display.as_html(display.pool_rows(self._body, self.scheduler_info["workers"]))

    def _repr_html_(self, cluster_status: Any = None) -> str:
        html: str = super()._repr_html_(cluster_status=(cluster_status or "") + self._scaling_status())
        return html
