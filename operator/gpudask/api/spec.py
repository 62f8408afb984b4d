"""What a user writes: the models of `spec`, with defaults, and the rules that need more than a type.

A rule that the API server can check is a CEL rule beside its model, so `kubectl apply` refuses it at once.
The same rule holds here in Python, because an object may have been stored before the rule existed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from gpudask.api.values import Duration, Quantity, number, seconds

MAX_POOLS = 32
MAX_REPLICAS = 5000
MAX_CLUSTER_NAME = 35  # <cluster>-<pool, 15>-worker-<n, 4> is a host name: 63 at most
POOL_NAME = "^[a-z][a-z0-9]{0,14}$"
CLUSTER_NAME = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
DEFAULT_GPU_RESOURCE = "nvidia.com/gpu"
OWN_FLAGS = ("--name", "--resources", "--nthreads", "--memory-limit", "--preload", "--nworkers", "--scheduler-file")

Json = dict[str, Any]
FreeObject = Annotated[Json, WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})]


def _rule(rule: str, message: str, *, field: str = "") -> Json:
    return {"rule": rule, "message": message} | ({"fieldPath": field} if field else {})


class Model(BaseModel):
    """Base of every part of the resource: camelCase in JSON, frozen, unknown fields kept out."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        populate_by_name=True,
        alias_generator=lambda name: name.split("_")[0] + "".join(w.title() for w in name.split("_")[1:]),
    )


class TemplateMetadata(Model):
    """Labels and annotations added to pods."""

    labels: Annotated[dict[str, str], Field(default_factory=dict, max_length=64)]
    annotations: Annotated[dict[str, str], Field(default_factory=dict, max_length=64)]


class Template(Model):
    """A partial pod template, merged over ours with Kubernetes' strategic-merge meaning.

    The main container is called `dask`. Whatever a pod can have is reachable here.
    """

    metadata: TemplateMetadata = Field(default_factory=lambda: TemplateMetadata.model_validate({}))
    spec: FreeObject = Field(default_factory=dict)


class EnvVar(Model):
    """An environment variable of the main container, as in a pod."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                _rule(
                    "!self.name.startsWith('GPUDASK_')",
                    "names that start with GPUDASK_ belong to the operator: choose another name",
                )
            ]
        }
    )

    name: Annotated[str, Field(min_length=1, max_length=128)]
    value: Annotated[str, Field(max_length=32768)] | None = None
    value_from: FreeObject | None = None


class LocalObjectReference(Model):
    """The name of an object in the same namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253)]


ResourceList = Annotated[dict[str, Quantity], Field(max_length=16)]


def _resources(cpu: str | int, memory: str) -> ResourceList:
    return {"cpu": cpu, "memory": memory}


EnvList = Annotated[list[EnvVar], Field(default_factory=list, max_length=64)]
ExtraArgs = Annotated[list[Annotated[str, Field(max_length=1024)]], Field(default_factory=list, max_length=32)]


class Service(Model):
    """How the scheduler's Service is exposed."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    annotations: Annotated[dict[str, str], Field(default_factory=dict, max_length=64)]


class Scheduler(Model):
    """The scheduler pod."""

    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    resources: ResourceList = Field(default_factory=lambda: _resources("500m", "2Gi"))
    env: EnvList
    extra_args: ExtraArgs
    template: Template = Field(default_factory=Template)
    service: Service = Field(default_factory=lambda: Service.model_validate({}))


class Autoscale(Model):
    """Limits between which a pool follows demand. All counts are pods."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                _rule("self.min <= self.max", "min is larger than max: raise max or lower min")
            ]
        }
    )

    min: Annotated[int, Field(ge=0, le=MAX_REPLICAS, description="pods that stay without demand")] = 0
    max: Annotated[int, Field(ge=1, le=MAX_REPLICAS, description="pods at most")]
    idle_timeout: Annotated[
        Duration, Field(description="how long a pod has had no work of its pool's own before it leaves")
    ] = "60s"
    target_duration: Annotated[
        Duration, Field(description="in what time the queue should clear, where durations are known")
    ] = "30s"

    @model_validator(mode="after")
    def _ordered(self) -> Autoscale:
        if self.min > self.max:
            raise ValueError("min is larger than max: raise max or lower min")
        return self

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
        Field(max_length=16, description="labels of the nodes that have these devices"),
    ] = Field(default_factory=lambda: {"nvidia.com/gpu.present": "true"})
    launcher: Annotated[
        Literal["dask-cuda", "dask"],
        Field(description="dask-cuda: one worker for each GPU; dask: one worker that sees all of the pod's GPUs"),
    ] = "dask-cuda"


class HeldData(Model):
    """What happens to results that keep an idle pod because they have nowhere to go. Absent: they keep it."""

    release_after: Annotated[Duration, Field(description="let them go after the pod was idle this long")]

    @property
    def release_after_seconds(self) -> float:
        """`releaseAfter` in seconds."""
        return seconds(self.release_after)


class Pool(Model):
    """A set of equal worker pods with a size of its own."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                _rule(
                    f"self.name.matches('{POOL_NAME}')",
                    "a pool's name is 1 to 15 lower-case letters and digits, a letter first, no hyphen:"
                    " write gpu2, not gpu-2",
                    field=".name",
                ),
                _rule(
                    "self.name != 'scheduler'", "the name scheduler is taken: call the pool otherwise", field=".name"
                ),
                _rule(
                    "!(has(self.replicas) && has(self.autoscale))",
                    "a pool has replicas (fixed) or autoscale (min, max), not both: remove one",
                ),
                _rule(
                    "!has(self.extraArgs) || !self.extraArgs.exists(a, ["
                    + ", ".join(f"'{flag}'" for flag in OWN_FLAGS)
                    + "].exists(f, a == f || a.startsWith(f + '=')))",
                    "extraArgs may not set " + ", ".join(OWN_FLAGS) + ": use the pool's offers, nthreads and resources",
                    field=".extraArgs",
                ),
            ]
        }
    )

    name: Annotated[str, Field(min_length=1, max_length=63)]
    replicas: (
        Annotated[int, Field(ge=0, le=MAX_REPLICAS, description="pods, fixed; without it and autoscale: 1")] | None
    ) = None
    autoscale: Autoscale | None = None
    resources: Annotated[ResourceList, Field(description="of each pod; requests, and for memory the limit too")] = (
        Field(default_factory=lambda: _resources(1, "2Gi"))
    )
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
    shm_size: Annotated[Quantity, Field(description="size of /dev/shm")] | None = None
    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    env: EnvList
    extra_args: ExtraArgs
    template: Template = Field(default_factory=Template)
    held_data: HeldData | None = None

    @model_validator(mode="after")
    def _one_size(self) -> Pool:
        if self.replicas is not None and self.autoscale is not None:
            raise ValueError("a pool has replicas (fixed) or autoscale (min, max), not both: remove one")
        return self

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

    pool: Annotated[str, Field(min_length=1, max_length=63)]
    replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS, description="pods")]
    by: Annotated[str, Field(max_length=128, description="who set it")] = ""
    until: Annotated[AwareDatetime, Field(description="when it ends; without it, when it is removed")] | None = None


class Spec(Model):
    """`spec` of a GpuDaskCluster."""

    image: Annotated[str, Field(min_length=1, max_length=512, description="one environment for every pod")]
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secrets: Annotated[list[LocalObjectReference], Field(default_factory=list, max_length=16)]
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
    pools: Annotated[list[Pool], Field(min_length=1, max_length=MAX_POOLS)]
    overrides: Annotated[list[Override], Field(default_factory=list, max_length=MAX_POOLS)]

    @model_validator(mode="after")
    def _distinct(self) -> Spec:
        names = [pool.name for pool in self.pools]
        if len(set(names)) != len(names):
            raise ValueError(f"pools have names of their own, got {names}: rename one")
        return self

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
