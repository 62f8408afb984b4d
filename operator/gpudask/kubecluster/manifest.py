"""The arguments of `KubeCluster(...)` -> the manifest of a GpuDaskCluster. Pure, but for reading a file of one.

They are those of `dask_kubernetes.operator.KubeCluster` where they mean the same. What cannot be said with
them, or not together, is refused with what to write instead.
"""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from gpudask.api import Json
from gpudask.api.resource import API_VERSION, KIND, MAX_CLUSTER_NAME, InvalidSpecError, parse
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.pools import duration, env_list, extra_args, pod_resources, size

Size = int | tuple[int, int]
DEFAULT_SIZE = (1, 4)
DEFAULT_SHUTDOWN = "10m"
SHUTDOWN = "shutdownAfterDisconnect"  # of `spec.idle`
JUPYTER = "--jupyter"  # of `dask scheduler`
DEFAULT_NAME = "{user}-{uuid}"
_NONCE_LENGTH = 5


@dataclass(frozen=True)
class Arguments:
    """The arguments for the cluster to create; None: not given. The class `KubeCluster` explains each."""

    image: str | None = None
    n_workers: Size | None = None
    gpus: Size | None = None
    resources: Mapping[str, Any] | None = None
    env: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    worker_command: str | Sequence[str] | None = None
    idle_timeout: float | str | None = None
    scheduler_service_type: str | None = None
    protocol: str | None = None
    pools: Sequence[Any] | None = None
    custom_cluster_spec: Any = None
    jupyter: bool | None = None

    def given(self) -> list[str]:
        """The arguments that were given."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]


@dataclass(frozen=True)
class Shutdown:
    """The end of a cluster to which no program is connected.

    Attributes:
        after: how long it waits for one, as a manifest has it; empty: for ever.
        is_asked: the program said so, or that there is none. Else a manifest that says something itself is followed.
    """

    after: str = ""
    is_asked: bool = False

    @classmethod
    def of(cls, given: Any, configured: Any = DEFAULT_SHUTDOWN) -> Shutdown:
        """What `shutdown_after_disconnect` means, `no_default` where it was not given; 0 and None are never.

        Raises:
            KubeClusterError: it is no duration.
        """
        from dask.typing import no_default  # noqa: PLC0415 - the command line writes manifests without Dask

        value = configured if given is no_default else given
        after = duration("shutdown_after_disconnect", value) if value else ""
        return cls(after, is_asked=given is not no_default)

    def is_left_to(self, custom: Any) -> bool:
        """True if `custom_cluster_spec` says it."""
        return not self.is_asked and SHUTDOWN in _section(_section(custom, "spec") or custom, "idle")

    def put_into(self, body: Json) -> Json:
        """`body` of a valid shape, with it."""
        spec = body["spec"]
        if not self.after or not isinstance(spec, Mapping) or not isinstance(spec.get("idle") or {}, Mapping):
            return body
        return {**body, "spec": {**spec, "idle": {**(spec.get("idle") or {}), SHUTDOWN: self.after}}}


def manifest(name: str, arguments: Arguments, *, default_image: str = "", shutdown: Shutdown | None = None) -> Json:
    """The GpuDaskCluster `name`, valid as far as its models can say.

    Without an image of its own it has `default_image`; where that is empty, too, none: the operator has a default.

    Raises:
        KubeClusterError: an argument cannot be used, alone or beside another; the message says what to write.
    """
    _refuse_pairs(arguments)
    if arguments.custom_cluster_spec is not None:
        body = _custom(name, arguments.custom_cluster_spec)
    else:
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}}
        body["spec"] = _spec(arguments, default_image)
    if shutdown is not None:
        body = shutdown.put_into(body)
    _check(body)
    return body


def open_to(body: Json, program: str, namespace: str) -> Json:
    """Let the pods of the namespace `program` connect to the cluster, which will be in `namespace`.

    Else the cluster's NetworkPolicy keeps out the very pod whose program creates it. One pod cannot be selected: its
    labels may be another one's, too, and its address becomes another one's. Nor would it be worth it: who may create
    a GpuDaskCluster may run pods there that have any cluster's labels.
    """
    from gpudask.api.network import NAMESPACE_NAME  # noqa: PLC0415 - the models take long to load

    peer: Json = {"podSelector": {}}
    if program != namespace:
        peer["namespaceSelector"] = {"matchLabels": {NAMESPACE_NAME: program}}
    return {**body, "spec": {**body["spec"], "network": {"allowFrom": [peer]}}}


def cluster_name(wanted: str | None, *, user: str, nonce: str) -> str:
    """`wanted` with `{user}` and `{uuid}` filled in, as the stock client does; without it a new name.

    Args:
        wanted: checked by the resource's own rules later.
        user: whose; reduced to what a name may have.
        nonce: lower-case letters and digits that nobody else has, of which five are used.
    """
    if wanted is not None and "{" not in wanted:
        return wanted
    pattern = wanted or DEFAULT_NAME
    fixed = len(pattern.replace("{user}", "").replace("{uuid}", "")) + _NONCE_LENGTH * pattern.count("{uuid}")
    who = _plain_name(user)[: max(1, MAX_CLUSTER_NAME - fixed)].rstrip("-")
    return pattern.replace("{user}", who).replace("{uuid}", nonce[:_NONCE_LENGTH])


def user() -> str:
    """The user who runs this program, for people who ask who set a size."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user id without a name; Windows knows neither
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"


def read_manifest(custom: Any) -> Any:
    """The GpuDaskCluster of a YAML file, where `custom` is a path. Anything else as it is.

    Raises:
        KubeClusterError: no such file, no YAML, or not one GpuDaskCluster in it.
    """
    if not isinstance(custom, str | Path):
        return custom
    try:
        documents = [item for item in yaml.safe_load_all(Path(custom).read_text("utf-8")) if item]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise KubeClusterError(
            f"cannot read custom_cluster_spec {str(custom)!r}",
            reason=str(error),
            next_step="Write the path of a YAML file, or a dict",
        ) from error
    if len(documents) == 1:
        return documents[0]
    ours = [item for item in documents if isinstance(item, dict) and item.get("kind") == KIND]
    if len(ours) != 1:
        raise KubeClusterError(
            f"custom_cluster_spec {str(custom)!r} is not one cluster",
            reason=f"the file holds {len(ours)} {KIND} in {len(documents)} documents",
            next_step="Leave one in it, and apply the others with kubectl",
        )
    return ours[0]


def name_of(custom: Any) -> str:
    """The name in a `custom_cluster_spec`, empty where it has none."""
    metadata = custom.get("metadata") if isinstance(custom, Mapping) else None
    return str((metadata or {}).get("name", ""))


def summary(body: Json) -> str:
    """The image and pools of a manifest, in one line."""
    pools = ", ".join(f"{pool['name']} ({_size(pool)})" for pool in body["spec"]["pools"])
    return f"image {body['spec'].get('image') or 'of the operator'}, pools {pools}"


def _spec(arguments: Arguments, default_image: str) -> Json:
    image = arguments.image or default_image
    spec: Json = {"image": image} if image else {}
    if arguments.env:
        spec["env"] = env_list(arguments.env)
    scheduler: Json = {}
    if arguments.scheduler_service_type is not None:
        scheduler["service"] = {"type": arguments.scheduler_service_type}
    if arguments.jupyter:
        scheduler["extraArgs"] = [JUPYTER]
    if scheduler:
        spec["scheduler"] = scheduler
    if arguments.protocol is not None:
        spec["protocol"] = arguments.protocol
    if arguments.idle_timeout:  # 0 is never, as in the stock client
        spec["idle"] = {"deleteAfter": duration("idle_timeout", arguments.idle_timeout)}
    spec["pools"] = [_plain(pool) for pool in arguments.pools] if arguments.pools is not None else _pools(arguments)
    return spec


def _section(values: Any, name: str) -> Mapping[str, Any]:
    found = values.get(name) if isinstance(values, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _pools(arguments: Arguments) -> list[Json]:
    cpu = arguments.n_workers
    if cpu is None and arguments.gpus is None:
        cpu = DEFAULT_SIZE
    common = pod_resources(arguments.resources) | extra_args(arguments.worker_command)
    pools = []
    if cpu is not None and cpu != 0:
        pools.append({"name": "cpu", **size("n_workers", cpu), **common})
    if arguments.gpus is not None and arguments.gpus != 0:
        limits = (0, arguments.gpus) if isinstance(arguments.gpus, int) else arguments.gpus
        pools.append({"name": "gpu", "gpu": {"count": 1}, **size("gpus", limits), **common})
    if not pools:
        raise _refused(
            "cannot make a cluster without any worker", "n_workers=0 and gpus=0", "Write n_workers=(0, 4) or gpus=8"
        )
    return pools


def _custom(name: str, custom: Any) -> Json:
    if _is_model(custom):
        custom = {"spec": _plain(custom)}
    if not isinstance(custom, Mapping):
        raise _refused(
            f"cannot use custom_cluster_spec of type {type(custom).__name__}",
            "it is a manifest, a spec, or the path of a YAML file",
            "Write a dict with metadata and spec, a gpudask.api.spec.Spec, or a path",
        )
    kind = custom.get("kind", KIND)
    if kind != KIND:
        raise _refused(
            f"cannot use custom_cluster_spec of kind {kind}",
            f"this operator knows {KIND}",
            "Turn a manifest of the stock operator into one: gpudask convert FILE",
        )
    body = dict(custom) if "spec" in custom else {"spec": dict(custom)}
    metadata = dict(body.get("metadata") or {})
    metadata["name"] = name
    return {**body, "apiVersion": API_VERSION, "kind": KIND, "metadata": metadata}


def _refuse_pairs(arguments: Arguments) -> None:
    given = arguments.given()
    others = [argument for argument in given if argument != "custom_cluster_spec"]
    if arguments.custom_cluster_spec is not None and others:
        raise _refused(
            f"cannot use custom_cluster_spec beside {', '.join(others)}",
            "the manifest says it all",
            "Put them into the manifest, or leave custom_cluster_spec out",
        )
    short = [argument for argument in ("n_workers", "gpus", "resources", "worker_command") if argument in given]
    if arguments.pools is not None and short:
        raise _refused(
            f"cannot use pools beside {', '.join(short)}",
            "these describe pools too",
            "Write size, gpu, resources and extraArgs into each pool: {'name': 'gpu', 'gpu': {'count': 1},"
            " 'autoscale': {'min': 0, 'max': 8}}",
        )


def _check(body: Json) -> None:
    try:
        parse({**body, "metadata": {"namespace": "", "uid": "", **body["metadata"]}})
    except InvalidSpecError as error:
        raise _refused(
            f"cluster {body['metadata']['name']!r} is not valid", str(error), "Correct what is named"
        ) from error


def _is_model(value: Any) -> bool:
    from pydantic import BaseModel  # noqa: PLC0415 - it takes long to load

    return isinstance(value, BaseModel)


def _plain(value: Any) -> Any:
    """A pool or spec as JSON, of a model or a mapping."""
    if _is_model(value):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return dict(value) if isinstance(value, Mapping) else value


def _plain_name(user: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", user.lower()).strip("-")
    return plain if plain[:1].isalpha() else f"dask-{plain}".rstrip("-")


def _size(pool: Json) -> str:
    limits = pool.get("autoscale")
    pods = f"{limits.get('min', 0)} to {limits['max']} pods" if limits else f"{pool.get('replicas', 1)} pods"
    gpus = (pool.get("gpu") or {}).get("count", 1)
    return f"{pods} of {gpus} GPU" if "gpu" in pool else pods


def _refused(what: str, reason: str, next_step: str) -> KubeClusterError:
    return KubeClusterError(what, reason=reason, next_step=next_step)
