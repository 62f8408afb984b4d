"""What a program reads of a `KubeCluster` in the stock client's words, and what `adapt` answers."""

from __future__ import annotations

import logging
import warnings
from asyncio import Task
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from gpudask.api import Json
from gpudask.kubecluster import overrides, pools
from gpudask.kubecluster.errors import KubeClusterError, KubeClusterTypeError, KubeClusterValueError
from gpudask.kubecluster.manifest import JUPYTER

if TYPE_CHECKING:
    from gpudask.kubecluster.resource import CreateMode, Resource
    from gpudask.kubecluster.scheduler.connection import SchedulerConnection
    from gpudask.kubecluster.stock.options import Options

logger = logging.getLogger(__name__)

# Of Dask's own Adaptive, which takes no part: what decides here instead.
_INSTEAD = {
    "Adaptive": "the operator decides",
    "interval": "the operator looks at once when demand changes",
    "wait_count": "a pod leaves after its pool's autoscale.idleTimeout",
    "target_duration": "a pool has autoscale.targetDuration",
    "worker_key": "the operator chooses who leaves, and cuts nobody's work",
}
_REFUSED = {
    "minimum_cores": "minimum",
    "maximum_cores": "maximum",
    "minimum_memory": "minimum",
    "maximum_memory": "maximum",
}


# dask-jobqueue's words: one of its jobs holds what a pod does.
_JOBS = ("minimum_jobs", "maximum_jobs")


class PartAttribute:
    """An attribute of `KubeCluster` that one of its parts has.

    Args:
        part: the part's own attribute there.
        what: its docstring.
        name: as the part calls it, where that is another name.
    """

    def __init__(self, part: str, what: str, name: str = "") -> None:
        self.__doc__ = what
        self._part, self._name = part, name

    def __set_name__(self, owner: type, name: str) -> None:
        """Note the name under which it stands."""
        self._name = self._name or name

    def __get__(self, cluster: Any, owner: type | None = None) -> Any:
        """Its value now."""
        return self if cluster is None else getattr(getattr(cluster, self._part), self._name)

    def __set__(self, cluster: Any, value: Any) -> None:
        """Set it, where the part lets that be done."""
        setattr(getattr(cluster, self._part), self._name, value)


class StockAttributes:
    """The stock client's attributes of one cluster: as it is, and as the program asked for it where it is not yet.

    Args:
        options: of the program.
        resource: the cluster.
        connection: to its scheduler.
    """

    def __init__(self, options: Options, resource: Resource, connection: SchedulerConnection) -> None:
        self.create_mode: CreateMode = options.create_mode
        self.scheduler_forward_port: int | None = options.dashboard_port or None
        self.port_forward_cluster_ip: bool | None = options.always_forwards or None
        self._arguments = options.arguments
        self._resource, self._connection = resource, connection

    @property
    def _spec(self) -> Json:
        return self._resource.body.get("spec") or {}

    @property
    def _scheduler(self) -> Json:
        return self._spec.get("scheduler") or {}

    @property
    def _pool(self) -> Json:
        """The section of the default pool, empty where the cluster was never read."""
        body = self._resource.body
        return overrides.section_of(body, pools.default_pool(body)) if body.get("spec") else {}

    @property
    def image(self) -> str | None:
        """The image of all pods; None where it is the server's default."""
        return self._spec.get("image") or self._arguments.image

    @property
    def env(self) -> Any:
        """The variables of all pods, as a pod has them or as they were given."""
        return self._spec.get("env") or self._arguments.env or {}

    @property
    def resources(self) -> Any:
        """Of each pod of the default pool."""
        return self._pool.get("resources") or self._arguments.resources or {}

    @property
    def n_workers(self) -> Any:
        """The pods of the default pool: as set, as its manifest says, or the least where it follows demand."""
        pool = self._pool
        if not pool:
            return self._arguments.n_workers
        entry = overrides.entry_of(self._resource.body, pool["name"]) or {}
        limits = pool.get("autoscale") or {}
        return entry.get("replicas", entry.get("min", limits.get("min", 0) if limits else pool.get("replicas", 1)))

    @property
    def worker_command(self) -> list[str]:
        """What starts a worker of the default pool, without what the operator adds."""
        pool = self._pool
        is_cuda = "gpu" in pool and (pool["gpu"] or {}).get("launcher") != "dask"
        return ["dask", *(["cuda"] if is_cuda else []), "worker", *pool.get("extraArgs", [])]

    @property
    def jupyter(self) -> bool:
        """True if Jupyter runs beside the scheduler."""
        return JUPYTER in self._scheduler.get("extraArgs", []) or bool(not self._spec and self._arguments.jupyter)

    @property
    def idle_timeout(self) -> float:
        """Seconds without a task after which the operator deletes the cluster; 0: never."""
        from gpudask.api.base import seconds  # noqa: PLC0415 - the models take long to load

        after = (self._spec.get("idle") or {}).get("deleteAfter")
        return seconds(after) if after else 0.0

    @property
    def scheduler_service_type(self) -> str:
        """The kind of the scheduler's Service."""
        kind: str = (self._scheduler.get("service") or {}).get("type", "ClusterIP")
        return kind

    @property
    def forwarded_dashboard_port(self) -> str:
        """The port in the dashboard's URL; empty where there is none."""
        port = self._connection.dashboard.removeprefix("http://").partition("/")[0].rpartition(":")[2]
        return port if port.isdecimal() else ""

    @property
    def requested(self) -> set[str]:
        """A name for each worker pod that there is, as the operator counted last: `gpu-0`."""
        return self._counted("pods")

    @property
    def plan(self) -> set[str]:
        """A name for each worker pod that there should be, as the operator counted last."""
        return self._counted("desired")

    def _counted(self, count: str) -> set[str]:
        rows = (self._resource.body.get("status") or {}).get("pools") or []
        return {f"{row['name']}-{number}" for row in rows for number in range(row.get(count, 0))}


@dataclass(frozen=True)
class Limits:
    """The limits between which a pool follows demand, as `adapt` has set them; it may be awaited.

    Attributes:
        minimum: pods that stay without demand.
        maximum: pods at most.
    """

    minimum: int
    maximum: int
    _task: Task[None] | None = field(default=None, repr=False, compare=False)

    def __await__(self) -> Generator[Any, Any, Self]:
        """Wait until they are set.

        Raises:
            KubeClusterError: they cannot be.
        """
        if self._task is not None:
            yield from self._task.__await__()
        return self

    @classmethod
    def of(cls, body: Json, minimum: int | None, maximum: int | None, pool: str | None) -> Self:
        """The limits that a pool has then: those of the cluster `body`, as last read, where one is left out."""
        from gpudask.api.pool import MAX_REPLICAS  # noqa: PLC0415 - the models take long to load

        limits: Json = {}
        with suppress(
            KubeClusterError, KeyError
        ):  # a pool that is not in it, or it was never read: who asks the API server will know
            limits = overrides.section_of(body, pools.pool_of_word(body, pool)).get("autoscale") or {}
        least = limits.get("min", 0) if minimum is None else minimum
        return cls(least, limits.get("max", MAX_REPLICAS) if maximum is None else maximum)

    def set_by(self, task: Task[None]) -> Limits:
        """The same, set by a task that nobody need await: the JupyterLab extension does not."""
        task.add_done_callback(_log_failure)
        return Limits(self.minimum, self.maximum, task)


def _log_failure(task: Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.warning("gpudask: adapt() has set nothing: %s", error)


def explain_adaptive(minimum: Any, maximum: int | None, others: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Warn of the words for Dask's own Adaptive, which takes no part; the minimum and the maximum that are meant.

    Args:
        minimum: `adapt`'s first argument, which may be a class of that kind.
        maximum: its second.
        others: what else it was given.

    Raises:
        KubeClusterError: an argument limits something else than pods, says a limit again, or there is none of its name.
    """
    words = {**({"Adaptive": minimum} if isinstance(minimum, type) else {}), **others}
    for name, value in words.items():
        if name in _JOBS:
            continue
        if name in _REFUSED:
            raise KubeClusterValueError(
                f"adapt({name}={value!r})",
                reason="a pool's limits are pods, each of the pool's resources",
                next_step=f"Write {_REFUSED[name]}=, in pods",
            )
        if name not in _INSTEAD:
            raise KubeClusterTypeError(
                f"adapt() has no argument {name!r}",
                reason="neither has Dask's own",
                next_step="Write adapt(minimum=0, maximum=8, pool='gpu')",
            )
        warnings.warn(f"adapt({name}=...) is not used: {_INSTEAD[name]}", stacklevel=3)
    least = None if isinstance(minimum, type) else minimum
    return _limit("minimum", least, others), _limit("maximum", maximum, others)


def _limit(word: str, pods: int | None, others: Mapping[str, Any]) -> int | None:
    jobs: int | None = others.get(f"{word}_jobs")
    if pods is not None and jobs not in (None, pods):
        raise KubeClusterValueError(
            f"adapt({word}={pods!r} beside {word}_jobs={jobs!r})",
            reason="both are a number of pods",
            next_step=f"Write {word}= alone",
        )
    return jobs if pods is None else pods
