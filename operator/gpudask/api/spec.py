"""`spec`, as users write it: its sections but pools, with their defaults and rules.

A rule stands beside its model, in `rules`: the API server gets it as CEL, so `kubectl apply` refuses at once, and
it holds here in Python too, because an object may have been stored before the rule existed.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from gpudask.api.base import (
    DURATION_PATTERN,
    ENOUGH_MEMORY,
    KNOWN_RESOURCES,
    Duration,
    FreeObject,
    Model,
    Rule,
    distinct,
    no_own_flags,
    seconds,
)
from gpudask.api.network import Network
from gpudask.api.pod_template import (
    AnnotationText,
    EnvList,
    ExtraArgs,
    Image,
    LocalObjectReference,
    ResourceList,
    Template,
    default_resources,
    no_reserved_keys,
)
from gpudask.api.pool import MAX_REPLICAS, Pool

MAX_POOLS = 32
MINUTE = 60.0
SHORTEST_IDLE_SECONDS = 10.0
SHORTEST_DISCONNECT_SECONDS = 2 * MINUTE
Protocol = Literal["tcp", "tls", "ws", "wss", "ucxx"]
SCHEDULER_OWN_FLAGS = ("--port", "--dashboard-address", "--protocol")


def _fallbacks(spec: Spec) -> set[str]:
    return {name for pool in spec.pools if pool.fallback for name in pool.fallback.to}


class Service(Model):
    """The scheduler's Service."""

    rules = (no_reserved_keys("annotations"),)

    type: Annotated[Literal["ClusterIP", "NodePort", "LoadBalancer"], Field(description="as of any Service")] = (
        "ClusterIP"
    )
    annotations: Annotated[
        dict[str, AnnotationText], Field(default_factory=dict, max_length=64, description="for load balancers and DNS")
    ]


class Scheduler(Model):
    """The scheduler pod."""

    rules = (
        no_own_flags(SCHEDULER_OWN_FLAGS, "set protocol at the top of the spec, the ports are fixed"),
        ENOUGH_MEMORY,
        KNOWN_RESOURCES,
        distinct("env", "name"),
    )

    image: Image | None = Field(default=None, description="instead of the cluster's; Dask's versions must agree")
    resources: Annotated[
        ResourceList, Field(description="requests, and for memory the limit too; by default cpu 500m, memory 2Gi")
    ] = Field(default_factory=lambda: default_resources("500m", "2Gi"))
    env: EnvList
    extra_args: ExtraArgs
    template: Template = Field(default_factory=Template)
    service: Service = Field(default_factory=lambda: Service.model_validate({}))


class Idle(Model):
    """Clean-up of clusters and GPU pods that are held without use."""

    rules = (
        Rule(
            f"!has(self.frozenFor) || type(self.frozenFor) != string || !self.frozenFor.matches('{DURATION_PATTERN}')"
            " || duration(self.frozenFor) >= duration('1m')",
            "a scheduler that restarts is silent for a while: write at least 1m, such as 30m, or leave it out to"
            " keep the pods",
            lambda idle: idle.frozen_for_seconds is None or idle.frozen_for_seconds >= MINUTE,
            ".frozenFor",
        ),
        Rule(
            f"!has(self.deleteAfter) || type(self.deleteAfter) != string"
            f" || !self.deleteAfter.matches('{DURATION_PATTERN}') || duration(self.deleteAfter) >= duration('10s')",
            "a program needs a moment between two computations: write at least 10s, such as 1h, or leave it out to keep"
            " the cluster",
            lambda idle: idle.delete_after_seconds is None or idle.delete_after_seconds >= SHORTEST_IDLE_SECONDS,
            ".deleteAfter",
        ),
        Rule(
            "!has(self.shutdownAfterDisconnect) || type(self.shutdownAfterDisconnect) != string"
            f" || !self.shutdownAfterDisconnect.matches('{DURATION_PATTERN}')"
            " || duration(self.shutdownAfterDisconnect) >= duration('2m')",
            "a program that lost its connection may need a minute to be seen again: write at least 2m, such as 10m, or"
            " leave it out to keep the cluster",
            lambda idle: idle.disconnect_seconds is None or idle.disconnect_seconds >= SHORTEST_DISCONNECT_SECONDS,
            ".shutdownAfterDisconnect",
        ),
    )

    frozen_for: Duration | None = Field(
        default=None,
        description="delete the GPU pods beyond a pool's size (its minimum, where the demand is not known) once the"
        " scheduler could not be reached, or could not drain pods, for this long: without a drain, so their tasks"
        " and results are lost. Absent: they stay",
    )
    delete_after: Duration | None = Field(
        default=None,
        description="delete the cluster, with the results that its workers hold, once its scheduler has had no task"
        " that waits or runs, and no actor, for this long; connected clients do not count. Absent: it stays",
    )
    shutdown_after_disconnect: Duration | None = Field(
        default=None,
        description="delete the cluster, with its tasks and results, once no client was connected to its scheduler, and"
        " no program held it as a KubeCluster, for this long, all of it heard by the operator; from the scheduler's"
        " start, where none ever came. A suspended one stays. Absent: so does any",
    )

    @property
    def frozen_for_seconds(self) -> float | None:
        """`frozenFor` in seconds; None: for ever."""
        return None if self.frozen_for is None else seconds(self.frozen_for)

    @property
    def delete_after_seconds(self) -> float | None:
        """`deleteAfter` in seconds; None: never."""
        return None if self.delete_after is None else seconds(self.delete_after)

    @property
    def disconnect_seconds(self) -> float | None:
        """`shutdownAfterDisconnect` in seconds; None: never."""
        return None if self.shutdown_after_disconnect is None else seconds(self.shutdown_after_disconnect)


class History(Model):
    """What stays of the cluster in its GpuDaskRecord, after its pods are gone and after it is gone itself."""

    rules = (
        Rule(
            f"!has(self.keep) || type(self.keep) != string || !self.keep.matches('{DURATION_PATTERN}')"
            " || duration(self.keep) >= duration('1m')",
            "a record that is gone at once tells nobody anything: write at least 1m, such as 48h, or leave it out",
            lambda history: history.keep_seconds is None or history.keep_seconds >= MINUTE,
            ".keep",
        ),
    )

    performance_report: Annotated[
        bool,
        Field(
            description="have the scheduler keep Dask's task stream, which takes memory for every task, and write"
            " Dask's performance report before the operator ends or suspends the cluster"
        ),
    ] = False
    keep: Duration | None = Field(
        default=None,
        description="for how long the record stays after the cluster's end; the operator's chart has the longest"
        " (history.keep), which is the default",
    )

    @property
    def keep_seconds(self) -> float | None:
        """`keep` in seconds; None: as long as the operator keeps any."""
        return None if self.keep is None else seconds(self.keep)


class Override(Model):
    """A size, or limits for autoscaling, set by a person or a client, apart from what the manifest's owner wrote."""

    rules = (
        Rule(
            "has(self.replicas) != has(self.max)",
            "an override has replicas (a fixed size) or max (autoscale up to it, from min), one of the two:"
            " write for example replicas: 4",
            lambda override: (override.replicas is None) != (override.max is None),
        ),
        Rule(
            "!has(self.min) || has(self.max)",
            "min is for autoscaling, and needs max beside it: write for example min: 0, max: 8",
            lambda override: override.min is None or override.max is not None,
            ".min",
        ),
        Rule(
            "!has(self.min) || !has(self.max) || self.min <= self.max",
            "min is larger than max: raise max or lower min",
            lambda override: override.min is None or override.max is None or override.min <= override.max,
            ".min",
        ),
    )

    pool: Annotated[str, Field(min_length=1, max_length=63, description="the name of a pool; others are ignored")]
    replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS, description="pods; autoscaling rests")] | None = None
    min: (
        Annotated[int, Field(ge=0, le=MAX_REPLICAS, description="pods that stay without demand; 0 without it")] | None
    ) = None
    max: (
        Annotated[
            int,
            Field(ge=1, le=MAX_REPLICAS, description="autoscale up to so many pods, also where the pool is fixed"),
        ]
        | None
    ) = None
    by: Annotated[str, Field(max_length=128, description="who set it")] = ""
    until: Annotated[AwareDatetime, Field(description="when it ends; without it, when it is removed")] | None = None


class Spec(Model):
    """`spec` of a GpuDaskCluster."""

    rules = (
        distinct("pools", "name"),
        distinct("overrides", "pool"),
        distinct("env", "name"),
        distinct("imagePullSecrets", "name"),
        Rule(
            "self.pools.all(p, !has(p.fallback) || p.fallback.to.all(t, self.pools.exists(q, q.name == t)))",
            "fallback.to names a pool that is not there: write the name of another pool of this cluster",
            lambda spec: _fallbacks(spec) <= {pool.name for pool in spec.pools},
            ".pools",
        ),
        Rule(
            "!has(self.protocol) || self.protocol in ['tcp', 'ucxx'] || !self.pools.exists(p, has(p.protocol))",
            "a pool's own protocol stands beside tcp alone: ucxx is not encrypted, and goes through no proxy. Remove"
            " protocol from the pools, or write protocol: tcp for the cluster",
            lambda spec: spec.protocol in ("tcp", "ucxx") or not any(pool.protocol for pool in spec.pools),
            ".pools",
        ),
    )

    image: Image | None = Field(
        default=None,
        description="one environment for every pod; absent: the default image of the operator (its chart's"
        " defaults.image) when the scheduler starts",
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None, description="as in a pod; by default Kubernetes' own rule"
    )
    image_pull_secrets: Annotated[
        list[LocalObjectReference],
        Field(default_factory=list, max_length=16, description="Secrets that may pull the images"),
    ]
    env: EnvList
    config: Annotated[FreeObject, Field(description="Dask configuration, for every pod")] = Field(default_factory=dict)
    template: Template = Field(default_factory=Template)
    protocol: Annotated[
        Protocol,
        Field(description="the scheduler's, and that of programs and pools; beside tcp a pool may have its own"),
    ] = "tcp"
    scheduler: Scheduler = Field(default_factory=lambda: Scheduler.model_validate({}))
    network: Network = Field(default_factory=lambda: Network.model_validate({}))
    rollout: Annotated[
        Literal["WhenIdle", "Drain"],
        Field(
            description="when an edited spec replaces the scheduler. WhenIdle: it holds no task; Drain: it runs none,"
            " held results are lost. Workers are always drained, and lose nothing. A new protocol reaches them with the"
            " scheduler; so does a new image with WhenIdle, and at once with Drain."
        ),
    ] = "WhenIdle"
    suspend: Annotated[bool, Field(description="retire every pod once its tasks end, keep the resource")] = False
    idle: Idle = Field(default_factory=lambda: Idle.model_validate({}))
    history: History = Field(default_factory=lambda: History.model_validate({}))
    pools: Annotated[
        list[Pool], Field(min_length=1, max_length=MAX_POOLS, description="the worker pools, each with its own size")
    ]
    overrides: Annotated[
        list[Override],
        Field(
            default_factory=list,
            max_length=MAX_POOLS,
            description="sizes set by people and clients (KubeCluster.scale), one for each pool at most",
        ),
    ]

    def own_protocol(self, pool: Pool) -> Literal["ucxx"] | None:
        """The protocol that workers of `pool` speak beside the cluster's; None: they speak the cluster's.

        There is none beside another than tcp: `ucxx` is the same, and an edited protocol, such as tls, may be in force
        until the scheduler is replaced.
        """
        return pool.protocol if self.protocol == "tcp" else None

    def protocol_of(self, pool: Pool) -> Protocol:
        """The protocol that workers of `pool` speak."""
        return self.own_protocol(pool) or self.protocol

    def accepts(self, pool: Pool) -> Literal["any", "annotated"]:
        """The tasks that may run in `pool`, `any` or those with resource annotations: as written, or the default."""
        if pool.accepts is not None:
            return pool.accepts
        others_accept_any = any(
            other.accepts == "any" or (other.accepts is None and other.gpu is None)
            for other in self.pools
            if other.name != pool.name
        )
        return "annotated" if pool.gpu is not None and others_accept_any else "any"
