"""What a user writes: the models of `spec`, with defaults, and the rules that need more than a type.

A rule stands beside its model, in `rules`: the API server gets it as CEL, so `kubectl apply` refuses at once, and
it holds here in Python too, because an object may have been stored before the rule existed.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema

from gpudask.api.rules import ENOUGH_MEMORY, Rule, check, distinct, no_own_flags
from gpudask.api.values import DURATION_PATTERN, Duration, Quantity, number, seconds

MAX_POOLS = 32
MAX_REPLICAS = 5000
MAX_CLUSTER_NAME = 35  # <cluster>-<pool, 15>-worker-<n, 4> is a host name: 63 at most
POOL_NAME = "^[a-z][a-z0-9]{0,14}$"
CLUSTER_NAME = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
EXTENDED_RESOURCE = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
DEFAULT_GPU_RESOURCE = "nvidia.com/gpu"
OWN_FLAGS = (
    "--name",
    "--nthreads",
    "--resources",
    "--memory-limit",
    "--preload",
    "--protocol",
    "--nworkers",
    "--scheduler-file",
)
SCHEDULER_OWN_FLAGS = ("--port", "--dashboard-address", "--protocol")

Json = dict[str, Any]
FreeObject = Annotated[Json, WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})]


class Model(BaseModel):
    """Base of every part of the resource: camelCase in JSON, frozen, unknown fields kept out."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        populate_by_name=True,
        alias_generator=lambda name: name.split("_")[0] + "".join(w.title() for w in name.split("_")[1:]),
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _obeys_rules(self) -> Self:
        check(self, self.rules)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /) -> Json:
        reference = handler(core_schema)
        if validations := [rule.schema() for rule in cls.rules if rule.cel is not None]:
            handler.resolve_ref_schema(reference)["x-kubernetes-validations"] = validations
        return reference


class TemplateMetadata(Model):
    """Labels and annotations added to pods."""

    labels: Annotated[dict[str, str], Field(default_factory=dict, max_length=64, description="added to ours")]
    annotations: Annotated[dict[str, str], Field(default_factory=dict, max_length=64, description="added to ours")]


class Template(Model):
    """A partial pod template, merged over ours with Kubernetes' strategic-merge meaning.

    The main container is called `dask`. Whatever a pod can have is reachable here.
    """

    metadata: TemplateMetadata = Field(default_factory=lambda: TemplateMetadata.model_validate({}))
    spec: Annotated[FreeObject, Field(description="any part of a pod's spec")] = Field(default_factory=dict)


class EnvVar(Model):
    """An environment variable of the main container, as in a pod."""

    rules = (
        Rule(
            "!self.name.startsWith('GPUDASK_')",
            "names that start with GPUDASK_ belong to the operator: choose another name",
            lambda env: not env.name.startswith("GPUDASK_"),
            ".name",
        ),
        Rule(
            "!(has(self.value) && has(self.valueFrom))",
            "a variable has value or valueFrom, not both: remove one",
            lambda env: env.value is None or env.value_from is None,
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=128, description="does not start with GPUDASK_")]
    value: Annotated[str, Field(max_length=32768)] | None = Field(default=None, description="a string: quote numbers")
    value_from: FreeObject | None = Field(default=None, description="as in a pod, e.g. a secretKeyRef")


class LocalObjectReference(Model):
    """The name of an object in the same namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253, description="in the cluster's namespace")]


ResourceList = Annotated[dict[str, Quantity], Field(max_length=16)]


def _resources(cpu: str | int, memory: str) -> ResourceList:
    return {"cpu": cpu, "memory": memory}


EnvList = Annotated[
    list[EnvVar],
    Field(default_factory=list, max_length=64, description="environment variables of the main container, as in a pod"),
]
ExtraArgs = Annotated[
    list[Annotated[str, Field(max_length=1024)]],
    Field(default_factory=list, max_length=32, description="arguments added to the command, as dask knows them"),
]
Image = Annotated[str, Field(min_length=1, max_length=512)]


class Service(Model):
    """How the scheduler's Service is exposed."""

    type: Annotated[Literal["ClusterIP", "NodePort", "LoadBalancer"], Field(description="as of any Service")] = (
        "ClusterIP"
    )
    annotations: Annotated[
        dict[str, str], Field(default_factory=dict, max_length=64, description="for load balancers and DNS")
    ]


class Scheduler(Model):
    """The scheduler pod."""

    rules = (
        no_own_flags(SCHEDULER_OWN_FLAGS, "set protocol at the top of the spec, the ports are fixed"),
        ENOUGH_MEMORY,
        distinct("env", "name"),
    )

    image: Image | None = Field(default=None, description="instead of the cluster's; Dask's versions must agree")
    resources: Annotated[
        ResourceList, Field(description="requests, and for memory the limit too; by default cpu 500m, memory 2Gi")
    ] = Field(default_factory=lambda: _resources("500m", "2Gi"))
    env: EnvList
    extra_args: ExtraArgs
    template: Template = Field(default_factory=Template)
    service: Service = Field(default_factory=lambda: Service.model_validate({}))


class Autoscale(Model):
    """Limits between which a pool follows demand. All counts are pods."""

    rules = (
        Rule(
            "self.min <= self.max",
            "min is larger than max: raise max or lower min",
            lambda autoscale: autoscale.min <= autoscale.max,
        ),
        Rule(
            f"type(self.targetDuration) != string || !self.targetDuration.matches('{DURATION_PATTERN}')"
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

    @property
    def idle_timeout_seconds(self) -> float:
        """`idleTimeout` in seconds."""
        return seconds(self.idle_timeout)

    @property
    def target_duration_seconds(self) -> float:
        """`targetDuration` in seconds."""
        return seconds(self.target_duration)


class Gpu(Model):
    """Makes a pool a GPU pool: each pod gets `count` devices, one worker process for each."""

    rules = (
        Rule(
            f"self.resourceName.matches('{EXTENDED_RESOURCE}')",
            "a device plugin's resource has a domain and a name: write for example nvidia.com/gpu",
            lambda gpu: re.fullmatch(EXTENDED_RESOURCE, gpu.resource_name) is not None,
            ".resourceName",
        ),
    )

    count: Annotated[int, Field(ge=1, le=64, description="GPUs of each pod")] = 1
    resource_name: Annotated[
        str,
        Field(
            max_length=128,
            description="the extended resource that a device plugin offers, e.g. nvidia.com/mig-1g.10gb",
        ),
    ] = DEFAULT_GPU_RESOURCE
    node_selector: Annotated[
        dict[str, str],
        Field(
            max_length=16,
            description="labels of the nodes that have these devices; by default nvidia.com/gpu.present: true",
        ),
    ] = Field(default_factory=lambda: {"nvidia.com/gpu.present": "true"})
    launcher: Annotated[
        Literal["dask-cuda", "dask"],
        Field(description="dask-cuda: one worker for each GPU; dask: one worker that sees all of the pod's GPUs"),
    ] = "dask-cuda"


def _asks_for_gpus(resource: str, gpu: Gpu | None) -> bool:
    own = gpu is not None and resource == gpu.resource_name
    return own or resource.startswith("nvidia.com/") or resource.endswith("/gpu")


class HeldData(Model):
    """What happens to results that keep an idle pod because they have nowhere to go. Absent: they keep it."""

    release_after: Annotated[Duration, Field(description="let them go after the pod was idle this long")]

    @property
    def release_after_seconds(self) -> float:
        """`releaseAfter` in seconds."""
        return seconds(self.release_after)


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
            " || (has(self.gpu) && k == self.gpu.resourceName))",
            "GPUs are not asked for in resources: write gpu: {count: 1} beside it (and resourceName for others"
            " than nvidia.com/gpu), which also sets nodes and launcher",
            lambda pool: not any(_asks_for_gpus(name, pool.gpu) for name in pool.resources),
            ".resources",
        ),
        ENOUGH_MEMORY,
        no_own_flags(OWN_FLAGS, "use the pool's offers, nthreads and resources"),
        distinct("env", "name"),
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
    ] = Field(default_factory=lambda: _resources(1, "2Gi"))
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
    shm_size: Quantity | None = Field(default=None, description="size of /dev/shm; by default the node's, 64Mi")
    image: Image | None = Field(default=None, description="instead of the cluster's; Dask's versions must agree")
    env: EnvList
    extra_args: ExtraArgs
    template: Template = Field(default_factory=Template)
    held_data: HeldData | None = None

    @property
    def gpus_per_pod(self) -> int:
        """GPUs that one pod holds."""
        return self.gpu.count if self.gpu else 0

    @property
    def workers_per_pod(self) -> int:
        """Dask worker processes of one pod."""
        return self.gpu.count if self.gpu and self.gpu.launcher == "dask-cuda" else 1

    @property
    def threads_per_worker(self) -> int:
        """Threads of one worker: as written, else 1 beside a GPU, else the pod's cores rounded up."""
        if self.nthreads is not None:
            return self.nthreads
        if self.gpu is not None:
            return 1
        return max(1, -int(-number(self.resources.get("cpu", 1)) // 1))

    @property
    def offered_resources(self) -> dict[str, float]:
        """Dask resources that one worker offers."""
        if self.offers is not None:
            return {name: number(quantity) for name, quantity in self.offers.items()}
        if self.gpu is None:
            return {}
        return {"GPU": float(self.gpu.count) if self.gpu.launcher == "dask" else 1.0}


class Override(Model):
    """A size set by a person or a client, apart from what the manifest's owner wrote."""

    pool: Annotated[str, Field(min_length=1, max_length=63, description="the name of a pool; others are ignored")]
    replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS, description="pods")]
    by: Annotated[str, Field(max_length=128, description="who set it")] = ""
    until: Annotated[AwareDatetime, Field(description="when it ends; without it, when it is removed")] | None = None


class Spec(Model):
    """`spec` of a GpuDaskCluster."""

    rules = (
        distinct("pools", "name"),
        distinct("overrides", "pool"),
        distinct("env", "name"),
        distinct("imagePullSecrets", "name"),
    )

    image: Annotated[str, Field(min_length=1, max_length=512, description="one environment for every pod")]
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
        Literal["tcp", "tls", "ws", "wss", "ucxx"],
        Field(description="one for the cluster: every peer must speak it"),
    ] = "tcp"
    scheduler: Scheduler = Field(default_factory=lambda: Scheduler.model_validate({}))
    rollout: Annotated[
        Literal["WhenIdle", "Drain"],
        Field(
            description="when an edited spec replaces the scheduler. WhenIdle: it holds no task; Drain: it runs none,"
            " held results are lost. Workers are always drained, and lose nothing."
        ),
    ] = "WhenIdle"
    suspend: Annotated[bool, Field(description="retire every pod once its tasks end, keep the resource")] = False
    pools: Annotated[
        list[Pool], Field(min_length=1, max_length=MAX_POOLS, description="the worker pools, each with its own size")
    ]
    overrides: Annotated[
        list[Override],
        Field(
            default_factory=list,
            max_length=MAX_POOLS,
            description="sizes set by people and clients (gpudask scale, KubeCluster.scale), one for each pool at most",
        ),
    ]

    def accepts(self, pool: Pool) -> Literal["any", "annotated"]:
        """Whether tasks without resource annotations may run in `pool`: as written, or the default."""
        if pool.accepts is not None:
            return pool.accepts
        others_accept_any = any(
            other.accepts == "any" or (other.accepts is None and other.gpu is None)
            for other in self.pools
            if other.name != pool.name
        )
        return "annotated" if pool.gpu is not None and others_accept_any else "any"
