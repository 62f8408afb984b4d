"""`spec.pools[]`: pools of equal worker pods, with their sizes, devices, and what they offer and accept."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field

from gpudask.api.base import (
    DURATION_PATTERN,
    ENOUGH_MEMORY,
    KNOWN_RESOURCES,
    Duration,
    Model,
    Quantity,
    Rule,
    distinct,
    no_own_flags,
    number,
    seconds,
)
from gpudask.api.gpu import Gpu
from gpudask.api.pod_template import EnvList, ExtraArgs, Image, ResourceList, Template, default_resources

MAX_REPLICAS = 5000
POOL_NAME = "^[a-z][a-z0-9]{0,14}$"
OWN_FLAGS = (
    "--name",
    "--nthreads",
    "--resources",
    "--memory-limit",
    "--protocol",
    "--nworkers",
    "--scheduler-file",
)
DEFAULT_MEMORY = "2Gi"


class Autoscale(Model):
    """Limits between which a pool follows demand. All counts are pods."""

    rules = (
        Rule(
            "!has(self.min) || self.min <= self.max",
            "min is larger than max: raise max or lower min",
            lambda autoscale: autoscale.min <= autoscale.max,
        ),
        Rule(
            "!has(self.targetDuration) || type(self.targetDuration) != string"
            f" || !self.targetDuration.matches('{DURATION_PATTERN}')"
            " || duration(self.targetDuration) > duration('0s')",
            "the queue cannot clear in no time: write a duration above zero, such as 30s",
            lambda autoscale: autoscale.target_duration_seconds > 0,
            ".targetDuration",
        ),
    )

    min: Annotated[int, Field(ge=0, le=MAX_REPLICAS, description="pods that stay without demand")] = 0
    max: Annotated[int, Field(ge=1, le=MAX_REPLICAS, description="pods at most")]
    idle_timeout: Annotated[
        Duration, Field(description="how long a pod has had no work of its pool's own before it leaves")
    ] = "60s"
    target_duration: Annotated[
        Duration, Field(description="in what time the queue should clear, where durations are known")
    ] = "30s"

    look_ahead: Annotated[
        bool,
        Field(description="whether a pod starts for tasks whose inputs will be there by the time it is ready"),
    ] = True

    @property
    def idle_timeout_seconds(self) -> float:
        """`idleTimeout` in seconds."""
        return seconds(self.idle_timeout)

    @property
    def target_duration_seconds(self) -> float:
        """`targetDuration` in seconds."""
        return seconds(self.target_duration)


def _shm_fits(pool: Pool) -> bool:
    memory = pool.resources.get("memory")
    return pool.shm_size is None or memory is None or number(memory) > number(pool.shm_size)


_SHM_IN_MEMORY = Rule(
    "!has(self.shmSize) || !isQuantity(string(self.shmSize)) || (has(self.resources)"
    " ? !('memory' in self.resources) || !isQuantity(string(self.resources['memory']))"
    " || quantity(string(self.resources['memory'])).isGreaterThan(quantity(string(self.shmSize)))"
    f" : quantity('{DEFAULT_MEMORY}').isGreaterThan(quantity(string(self.shmSize))))",
    "what lies in /dev/shm counts toward the pod's memory: write more resources.memory than shmSize"
    f" (without it a pod has {DEFAULT_MEMORY})",
    _shm_fits,
    ".shmSize",
)


def _asks_for_gpus(resource: str, gpu: Gpu | None) -> bool:
    own = gpu is not None and resource == gpu.resource_name
    return own or resource.startswith("nvidia.com/") or resource.endswith("/gpu")


class HeldData(Model):
    """Release of results that keep an idle pod because no other worker can take them. Absent: they keep it."""

    release_after: Annotated[Duration, Field(description="release them after the pod was idle for this long")]

    @property
    def release_after_seconds(self) -> float:
        """`releaseAfter` in seconds."""
        return seconds(self.release_after)


class Recycle(Model):
    """Replacement of worker pods that work, against what long-lived processes accumulate, such as leaked memory."""

    after_tasks: Annotated[
        int, Field(ge=1, le=10**9, description="replace a pod once one of its workers has ended this many tasks")
    ]


class Fallback(Model):
    """Pools on which the tasks of a GPU pool run while it has no worker. Absent: they wait."""

    to: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=63)]],
        Field(min_length=1, max_length=16, description="pools whose workers then offer what this one's do"),
    ]
    after: Annotated[Duration, Field(description="how long tasks have waited, and no worker of the pool was there")] = (
        "240s"
    )

    @property
    def after_seconds(self) -> float:
        """`after` in seconds."""
        return seconds(self.after)


class Pool(Model):
    """A set of equal worker pods with a size of its own."""

    rules = (
        Rule(
            f"self.name.matches('{POOL_NAME}')",
            "a pool's name is 1 to 15 lower-case letters and digits, a letter first, no hyphen: write gpu2, not gpu-2",
            lambda pool: re.fullmatch(POOL_NAME, pool.name) is not None,
            ".name",
        ),
        Rule(
            "self.name != 'scheduler'",
            "the name scheduler is taken: call the pool otherwise",
            lambda pool: pool.name != "scheduler",
            ".name",
        ),
        Rule(
            "!(has(self.replicas) && has(self.autoscale))",
            "a pool has replicas (fixed) or autoscale (min, max), not both: remove one",
            lambda pool: pool.replicas is None or pool.autoscale is None,
        ),
        Rule(
            "!has(self.resources) || !self.resources.exists(k, k.startsWith('nvidia.com/') || k.endsWith('/gpu')"
            " || (has(self.gpu) && has(self.gpu.resourceName) && k == self.gpu.resourceName))",
            "GPUs are not asked for in resources: write gpu: {count: 1} beside it (and resourceName for others"
            " than nvidia.com/gpu), which also sets nodes and launcher",
            lambda pool: not any(_asks_for_gpus(name, pool.gpu) for name in pool.resources),
            ".resources",
        ),
        Rule(
            "!has(self.fallback) || !(self.name in self.fallback.to)",
            "a pool cannot fall back on itself: name other pools in to",
            lambda pool: pool.fallback is None or pool.name not in pool.fallback.to,
            ".fallback.to",
        ),
        ENOUGH_MEMORY,
        KNOWN_RESOURCES,
        _SHM_IN_MEMORY,
        no_own_flags(
            OWN_FLAGS,
            "write the pool's offers, nthreads, resources or gpu.count",
        ),
        distinct("env", "name"),
        Rule(
            f"!has(self.drainTimeout) || type(self.drainTimeout) != string"
            f" || !self.drainTimeout.matches('{DURATION_PATTERN}') || duration(self.drainTimeout) > duration('0s')",
            "a drain without any time cuts every task: write a duration above zero, such as 30m, or leave it out to"
            " wait for ever",
            lambda pool: pool.drain_timeout_seconds is None or pool.drain_timeout_seconds > 0,
            ".drainTimeout",
        ),
    )

    name: Annotated[
        str, Field(min_length=1, max_length=63, description="1 to 15 lower-case letters and digits, a letter first")
    ]
    replicas: (
        Annotated[int, Field(ge=0, le=MAX_REPLICAS, description="pods, fixed; without it and autoscale: 1")] | None
    ) = None
    autoscale: Autoscale | None = None
    resources: Annotated[
        ResourceList,
        Field(description="of each pod: requests, and for memory the limit too; by default cpu 1, memory 2Gi"),
    ] = Field(default_factory=lambda: default_resources(1, DEFAULT_MEMORY))
    gpu: Gpu | None = None
    offers: (
        Annotated[
            dict[str, Quantity],
            Field(max_length=16, description="Dask resources of each worker; GPU pools offer GPU: 1 by default"),
        ]
        | None
    ) = None
    accepts: (
        Annotated[
            Literal["any", "annotated"],
            Field(
                description="whether tasks without resource annotations may run here; by default GPU pools take"
                " annotated ones only where another pool accepts any"
            ),
        ]
        | None
    ) = None
    nthreads: (
        Annotated[
            int,
            Field(ge=1, le=1024, description="threads of each worker; by default the pod's cores, on a GPU worker 1"),
        ]
        | None
    ) = None
    shm_size: Quantity | None = Field(
        default=None,
        description="size of /dev/shm; by default the node's, 64Mi. It counts toward the pod's memory, and Dask is told"
        " that its workers have the rest",
    )
    image: Image | None = Field(default=None, description="instead of the cluster's; Dask's versions must agree")
    protocol: (
        Annotated[
            Literal["ucxx"],
            Field(
                description="what its workers speak where the cluster's protocol is tcp: ucxx takes NVLink within a pod"
                " and InfiniBand. Scheduler, other pools and programs go on with tcp; the image of each pod needs"
                " distributed-ucxx"
            ),
        ]
        | None
    ) = None
    env: EnvList
    extra_args: ExtraArgs
    template: Template = Field(default_factory=Template)
    held_data: HeldData | None = None
    drain_timeout: Duration | None = Field(
        default=None,
        description="delete a leaving pod after this time though it is not drained: its tasks run again elsewhere, and"
        " results that nobody else has are lost. Absent: it is waited for",
    )
    recycle: Recycle | None = None
    fallback: Fallback | None = None

    @property
    def gpus_per_pod(self) -> int:
        """GPUs that one pod holds."""
        return self.gpu.count if self.gpu else 0

    @property
    def workers_per_pod(self) -> int:
        """Dask worker processes of one pod."""
        return self.gpu.count if self.gpu and self.gpu.is_of_dask_cuda else 1

    @property
    def memory_per_worker(self) -> int | None:
        """Bytes that one worker may use: the pod's memory without its /dev/shm, shared evenly; None: no limit."""
        if "memory" not in self.resources:
            return None
        shared = number(self.shm_size) if self.shm_size is not None else 0.0
        return int((number(self.resources["memory"]) - shared) / self.workers_per_pod)

    @property
    def threads_per_worker(self) -> int:
        """Threads of one worker: as written, else 1 beside a GPU, else the pod's cores rounded up."""
        if self.nthreads is not None:
            return self.nthreads
        if self.gpu is not None:
            return 1
        return max(1, -int(-number(self.resources.get("cpu", 1)) // 1))

    @property
    def drain_timeout_seconds(self) -> float | None:
        """`drainTimeout` in seconds; None: for ever."""
        return None if self.drain_timeout is None else seconds(self.drain_timeout)

    @property
    def offered_resources(self) -> dict[str, float]:
        """Dask resources that one worker offers."""
        if self.offers is not None:
            return {name: number(quantity) for name, quantity in self.offers.items()}
        if self.gpu is None:
            return {}
        return {"GPU": 1.0 if self.gpu.is_of_dask_cuda else float(self.gpu.count)}
