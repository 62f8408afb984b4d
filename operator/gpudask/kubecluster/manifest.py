"""The arguments of `KubeCluster(...)` -> the manifest of a GpuDaskCluster. Pure, but for reading a file of one.

They are those of `dask_kubernetes.operator.KubeCluster` where they mean the same; `stock/` reads what is said otherwise
there. What cannot be said with them, or not together, is refused with what to write instead.
"""

from __future__ import annotations

import getpass
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from gpudask.api import Json
from gpudask.api.resource import API_VERSION, KIND, MAX_CLUSTER_NAME, InvalidSpecError, parse
from gpudask.kubecluster.errors import KubeClusterError, KubeClusterValueError
from gpudask.kubecluster.pools import duration, env_list, size
from gpudask.kubecluster.stock.worker import Worker, read_worker
from gpudask.stock import is_stock
from gpudask.stock.notes import Notes

if TYPE_CHECKING:
    from gpudask.kubecluster.stock.cuda import Cuda  # the command line writes manifests without Dask

logger = logging.getLogger(__name__)

Size = int | tuple[int, int]
DEFAULT_SIZE = (1, 4)
DEFAULT_GPUS = (0, 4)  # where only other arguments say that there are GPUs
DEFAULT_SHUTDOWN = "10m"
SHUTDOWN = "shutdownAfterDisconnect"  # of `spec.idle`
JUPYTER = "--jupyter"  # of `dask scheduler`
DEFAULT_NAME = "{user}-{uuid}"
_NONCE_LENGTH = 5
_FIELD = re.compile(r"{(\w+)}")


@dataclass(frozen=True)
class Arguments:
    """The arguments for the cluster to create; None: not given. The class `KubeCluster` explains each.

    Attributes:
        cuda: those of LocalCUDACluster.
        configured: the names of those that Dask's configuration has said, not the program.
    """

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
    cuda: Cuda | None = None
    configured: frozenset[str] = field(default=frozenset())

    def given(self) -> list[str]:
        """The arguments that the program gave."""
        own = [each.name for each in fields(self) if each.name not in ("cuda", "configured")]
        given = [name for name in own if getattr(self, name) is not None and name not in self.configured]
        return given + list(self.cuda.names if self.cuda else ())


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
        written = _plain(custom)
        return not self.is_asked and SHUTDOWN in _section(_section(written, "spec") or written, "idle")

    def put_into(self, body: Json) -> Json:
        """`body` of a valid shape, with it."""
        spec = body["spec"]
        if not self.after or not isinstance(spec, Mapping) or not isinstance(spec.get("idle") or {}, Mapping):
            return body
        return {**body, "spec": {**spec, "idle": {**(spec.get("idle") or {}), SHUTDOWN: self.after}}}


def manifest(name: str, arguments: Arguments, *, shutdown: Shutdown | None = None) -> Json:
    """The GpuDaskCluster `name`, valid as far as its models can say.

    Without an image it has none: the operator has a default.

    Raises:
        KubeClusterError: an argument cannot be used, alone or beside another; the message says what to write.
    """
    _refuse_pairs(arguments)
    if arguments.custom_cluster_spec is not None:
        body = _custom(name, arguments.custom_cluster_spec)
    else:
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}}
        body["spec"] = _spec(arguments)
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


def cluster_name(wanted: str | None, *, user: str, nonce: str, environment: Mapping[str, str] | None = None) -> str:
    """`wanted` with what is in braces filled in, as the stock client does; without it a new name.

    Args:
        wanted: checked by the resource's own rules later. `{user}`, `{uuid}`, and variables of the environment.
        user: whose; reduced, as any variable, to what a name may have.
        nonce: lower-case letters and digits that nobody else has, of which five are used.
        environment: the program's.

    Raises:
        KubeClusterValueError: there is no such variable.
    """
    pattern = wanted or DEFAULT_NAME
    values = {**(environment or {}), "user": user}
    names = [each for each in _FIELD.findall(pattern) if each != "uuid"]
    if unknown := [each for each in names if each not in values]:
        raise KubeClusterValueError(
            f"name={wanted!r}",
            reason=f"the environment has no variable {unknown[0]}",
            next_step="Write {user}, {uuid}, or the name of a variable",
        )
    fixed = len(_FIELD.sub("", pattern)) + _NONCE_LENGTH * pattern.count("{uuid}")
    each_length = max(1, (MAX_CLUSTER_NAME - fixed) // max(1, len(names)))

    def filled(match: re.Match[str]) -> str:
        if match[1] == "uuid":
            return nonce[:_NONCE_LENGTH]
        plain = _plain_name(values[match[1]], starts=match.start() == 0)
        return plain[:each_length].rstrip("-")

    return _FIELD.sub(filled, pattern)


def user() -> str:
    """The user who runs this program, for people who ask who set a size."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user id without a name; Windows knows neither
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"


def read_manifest(custom: Any) -> Any:
    """The GpuDaskCluster that `custom` is, or the path of a YAML file of; one of the stock operator's is converted.

    Raises:
        KubeClusterError: no such file, no YAML, not one cluster in it, or it cannot be converted.
    """
    if is_stock(custom):
        return _converted([custom])
    if not isinstance(custom, str | Path):
        return custom
    try:
        found = [item for item in yaml.safe_load_all(Path(custom).read_text("utf-8")) if item]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _refused(
            f"cannot read custom_cluster_spec {str(custom)!r}", str(error), "Write the path of a YAML file, or a dict"
        ) from error
    ours = [item for item in found if isinstance(item, dict) and item.get("kind") == KIND]
    if not ours and any(is_stock(item) for item in found):
        return _converted(found)
    if len(found) == 1:
        return found[0]
    if len(ours) != 1:
        raise _refused(
            f"custom_cluster_spec {str(custom)!r} is not one cluster",
            f"the file holds {len(ours)} {KIND} in {len(found)} documents",
            "Leave one in it, and apply the others with kubectl",
        )
    return ours[0]


def _converted(stock: list[Any]) -> Json:
    from gpudask.stock import conversion  # noqa: PLC0415 - 13 models, which few programs need

    notes = Notes()
    try:
        made = conversion.convert(stock, notes)
    except conversion.NotConvertibleError as error:
        raise _refused(
            "cannot use custom_cluster_spec", str(error), "Correct it; gpudask convert FILE shows what comes of it"
        ) from error
    if len(made) != 1:
        raise _refused("custom_cluster_spec is not one cluster", f"it holds {len(made)}", "Leave one in it")
    for note in notes.lost_ones:
        logger.warning("gpudask: %s", note)
    return made[0]


def name_of(custom: Any) -> str:
    """The name in a `custom_cluster_spec`, empty where it has none."""
    metadata = custom.get("metadata") if isinstance(custom, Mapping) else None
    return str((metadata or {}).get("name", ""))


def summary(body: Json) -> str:
    """The image and pools of a manifest, in one line."""
    pools = ", ".join(f"{pool['name']} ({_size(pool)})" for pool in body["spec"]["pools"])
    return f"image {body['spec'].get('image') or 'of the operator'}, pools {pools}"


def _spec(arguments: Arguments) -> Json:
    worker, cuda = read_worker(arguments.resources, arguments.worker_command), arguments.cuda
    spec: Json = {"image": arguments.image} if arguments.image else {}
    if arguments.env:
        spec["env"] = env_list(arguments.env)
    scheduler: Json = {}
    if arguments.scheduler_service_type is not None:
        scheduler["service"] = {"type": arguments.scheduler_service_type}
    if arguments.jupyter:
        scheduler["extraArgs"] = [JUPYTER]
    if scheduler:
        spec["scheduler"] = scheduler
    if protocol := arguments.protocol or worker.protocol or ("ucxx" if cuda and cuda.needs_ucx else ""):
        plain = str(protocol).removesuffix("://")
        spec["protocol"] = "ucxx" if plain == "ucx" else plain
    if arguments.idle_timeout:  # 0 is never, as in the stock client
        spec["idle"] = {"deleteAfter": duration("idle_timeout", arguments.idle_timeout)}
    if arguments.pools is not None:
        if not isinstance(arguments.pools, list | tuple):
            raise _refused(f"pools={arguments.pools!r}", "it is a list of pools", "Write pools=[{'name': 'cpu'}]")
        spec["pools"] = [_plain(pool) for pool in arguments.pools]
    else:
        spec["pools"] = _pools(arguments, worker)
    return spec


def _section(values: Any, name: str) -> Mapping[str, Any]:
    found = values.get(name) if isinstance(values, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _pools(arguments: Arguments, worker: Worker) -> list[Json]:
    cpu, gpus, cuda = arguments.n_workers, arguments.gpus, arguments.cuda
    of_gpus: Json = {"gpu": {"count": 1}}
    if gpus is not None and worker.gpu is not None:
        raise _refused(
            f"gpus={gpus!r} beside resources with GPUs",
            "both say how many",
            "Write gpus= alone; or n_workers= beside such resources",
        )
    if gpus is None and (worker.has_gpus or (cuda and cuda.needs_gpus)):
        # There, the workers are of one kind: these have GPUs.
        most = cuda.gpus if cuda else None
        limits = cpu if cpu is not None else DEFAULT_GPUS if most is None else most
        gpu_size = size("n_workers", min(limits, most) if most is not None and isinstance(limits, int) else limits)
        cpu = None
        if worker.has_gpus:
            of_gpus = worker.gpu_fields
    elif gpus:
        gpu_size = size("gpus", (0, gpus) if isinstance(gpus, int) else gpus)
    else:
        gpu_size = {}
        cpu = DEFAULT_SIZE if cpu is None else cpu
    pools = []
    if cpu is not None and (cpu != 0 or not gpu_size):
        pools.append(_merged({"name": "cpu", **size("n_workers", cpu)}, worker.cpu_fields, cuda.common if cuda else {}))
    if gpu_size:
        pool = {"name": "gpu", **of_gpus, **gpu_size}
        if cuda and (cuda.gpu or cuda.extra_args):  # options of `dask cuda worker`
            pool["gpu"] = {key: value for key, value in pool["gpu"].items() if key != "launcher"} | cuda.gpu
        of_cuda = {"extraArgs": cuda.extra_args} if cuda and cuda.extra_args else {}
        pools.append(_merged(pool, worker.fields, cuda.common if cuda else {}, of_cuda))
    return pools


def _merged(*parts: Json) -> Json:
    """The fields of all parts; lists are appended, and what an earlier part says of resources counts."""
    merged: Json = {}
    for part in parts:
        for key, value in part.items():
            if isinstance(value, list):
                merged[key] = [*merged.get(key, []), *value]
            else:
                merged[key] = value | merged.get(key, {}) if isinstance(value, dict) else merged.get(key, value)
    return merged


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
            f"this operator knows {KIND}, and DaskCluster of kubernetes.dask.org",
            "Write its kind and apiVersion",
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
    cuda = arguments.cuda.names if arguments.cuda else ()
    short = [each for each in ("n_workers", "gpus", "resources", "worker_command", *cuda) if each in given]
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


def _plain_name(user: str, *, starts: bool) -> str:
    """Letters, digits and hyphens; where the cluster's name `starts` with it, a letter first."""
    plain = re.sub(r"[^a-z0-9]+", "-", user.lower()).strip("-")
    return plain if plain[:1].isalpha() or not starts else f"dask-{plain}".rstrip("-")


def _size(pool: Json) -> str:
    limits = pool.get("autoscale")
    pods = f"{limits.get('min', 0)} to {limits['max']} pods" if limits else f"{pool.get('replicas', 1)} pods"
    gpus = (pool.get("gpu") or {}).get("count", 1)
    return f"{pods} of {gpus} GPU" if "gpu" in pool else pods


def _refused(what: str, reason: str, next_step: str) -> KubeClusterError:
    return KubeClusterValueError(what, reason=reason, next_step=next_step)
