"""The resource as a whole: names, labels and annotations of what it owns, parsing, limits of size and depth.

The models load when the first resource is parsed: they take a fifth of a second, and a client and most commands need
the names alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from gpudask.api import Json

if TYPE_CHECKING:
    from pydantic import ValidationError

    from gpudask.api.spec import Spec
    from gpudask.api.status import Status

GROUP = "gpudask.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "GpuDaskCluster"
PLURAL = "gpudaskclusters"
SINGULAR = "gpudaskcluster"
SHORT = "gdc"

LABEL_CLUSTER = f"{GROUP}/cluster"
LABEL_POOL = f"{GROUP}/pool"
LABEL_SCHEDULER = f"{GROUP}/scheduler"
LABEL_SERVES = f"{GROUP}/serves"  # the uid of the cluster whose Service leads to the pod
LABEL_GPU = f"{GROUP}/gpu"
LABEL_PRELOAD = f"{GROUP}/preload"  # on what the clusters of a namespace share: the code that runs in their schedulers
ANNOTATION_SPEC_HASH = f"{GROUP}/spec-hash"
ANNOTATION_DASK_NAME = f"{GROUP}/dask-name"
ANNOTATION_RETIRE = f"{GROUP}/retire"
ANNOTATION_GPUS = f"{GROUP}/gpus"
ANNOTATION_MADE_WITH = f"{GROUP}/made-with"  # on scheduler pods
ANNOTATION_MIRRORED = f"{GROUP}/mirrored"
# On a DaskCluster or a DaskJob that others own: its uid, and that of what serves it.
ANNOTATION_SERVED_BY = f"{GROUP}/served-by"
ANNOTATION_TAKE_OVER = f"{GROUP}/take-over"  # on a DaskCluster of the stock operator: `now`, busy or not
ANNOTATION_AUTOSCALE = f"{GROUP}/autoscale"  # on a DaskWorkerGroup or a DaskCluster: `0..8`, pods by demand
ANNOTATION_HOLDS = f"{GROUP}/holds-"  # and a pool's name; on the cluster, written by clients alone
ANNOTATION_CREATION = f"{GROUP}/creation-id"  # on the cluster: by it a client knows what it made without an answer

# Of the records of clusters, whose models are `record`'s.
RECORD_KIND = "GpuDaskRecord"
RECORD_PLURAL = "gpudaskrecords"
RECORD_SINGULAR = "gpudaskrecord"
RECORD_SHORT = "gdr"
ANNOTATION_ENDED = f"{GROUP}/ended"  # the cluster's end: records whose time has come are found without reading them
ANNOTATION_KEEP = f"{GROUP}/keep-seconds"  # after it
ANNOTATION_UID = f"{GROUP}/cluster-uid"
_UID_DIGITS = 8  # of a cluster's uid, in its record's name

# Of jobs, whose models are `job`'s. The labels are on what a job makes: its cluster and its runners' pods.
JOB_KIND = "GpuDaskJob"
JOB_PLURAL = "gpudaskjobs"
JOB_SINGULAR = "gpudaskjob"
JOB_SHORT = "gdj"
LABEL_JOB = f"{GROUP}/job"
LABEL_ATTEMPT = f"{GROUP}/attempt"
GATE_RECORDED = f"{GROUP}/recorded"  # of a runner's pod: until the job's status has its uid

# Of cron jobs, whose models are `cron_job`'s. The label and the annotation are on the jobs that they make.
CRON_JOB_KIND = "GpuDaskCronJob"
CRON_JOB_PLURAL = "gpudaskcronjobs"
CRON_JOB_SINGULAR = "gpudaskcronjob"
CRON_JOB_SHORT = "gdcj"
LABEL_CRON_JOB = f"{GROUP}/cron-job"
ANNOTATION_SCHEDULED = f"{GROUP}/scheduled-time"

# Conventions of the stock Dask client: the labels that it looks for, and the pool that is meant where none is named.
LABEL_DASK_CLUSTER = "dask.org/cluster-name"
LABEL_DASK_COMPONENT = "dask.org/component"
LABEL_DASK_GROUP = "dask.org/workergroup-name"
DEFAULT_GROUP = "default"
STOCK_GROUP = "kubernetes.dask.org"  # of the stock operator's resources, which the mirror has, too
STOCK_KIND = "DaskCluster"
STOCK_JOB_KIND = "DaskJob"
STOCK_MANAGER = "gpudask-stock"
"""The field manager of the specs of clusters that serve a DaskCluster."""
MIRROR_MANAGER = "gpudask-mirror"
"""The field manager of overrides that users of the stock client set."""

# Far above what pods can have: Linux takes no environment variable above 128 KiB, etcd no object above 1.5 MiB.
MAX_SPEC_BYTES = 512 * 1024
MAX_CONFIG_BYTES = 64 * 1024  # every pod carries it: a thousand of them are 64 MiB of the API server's already
MAX_TEMPLATE_BYTES = 128 * 1024
_OUTLINE_BYTES, _OUTLINE_LEVELS, _OUTLINE_ITEMS = 32 * 1024, 3, 64
_LEAST_BYTES = 16  # with fewer left nothing more is looked at
# The parts of a pod's spec are eleven levels deep at most; Dask's configuration has five.
MAX_DEPTH = 32

MAX_CLUSTER_NAME = 35  # <cluster>-<pool, 15>-worker-<n, 4> is a host name: 63 at most
CLUSTER_NAME = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
NAME_LENGTH_ADVICE = (
    f"a cluster's name has at most {MAX_CLUSTER_NAME} characters, because the pods' host names carry it:"
    " choose a shorter one"
)
NAME_ADVICE = (
    "a cluster's name is lower-case letters, digits and hyphens, a letter first and no hyphen last:"
    " it becomes the name of a Service"
)

JOB_NAME_LENGTH_ADVICE = (
    f"a job's name has at most {MAX_CLUSTER_NAME} characters, because its cluster has it, too: choose a shorter one"
)
JOB_NAME_ADVICE = (
    "a job's name is lower-case letters, digits and hyphens, a letter first and no hyphen last:"
    " it becomes the name of its cluster"
)

MAX_CRON_JOB_NAME = 26  # <cron job>-<minutes since the epoch, 8 digits> is the name of a job
CRON_JOB_NAME_LENGTH_ADVICE = (
    f"a cron job's name has at most {MAX_CRON_JOB_NAME} characters, because its jobs' names carry it and their time:"
    " choose a shorter one"
)
CRON_JOB_NAME_ADVICE = (
    "a cron job's name is lower-case letters, digits and hyphens, a letter first and no hyphen last:"
    " it becomes part of the names of its jobs"
)


class InvalidSpecError(ValueError):
    """A stored spec that the operator cannot act on; the message names each field and says what to write."""


@dataclass(frozen=True)
class Identity:
    """The identity of a GpuDaskCluster: also of one whose spec nobody can act on."""

    name: str
    namespace: str
    uid: str

    @property
    def owner_key(self) -> str:
        """The key by which the objects of this cluster are found: `owner_key`."""
        return owner_key(self.namespace, self.uid)


def owner_key(namespace: str, uid: str) -> str:
    """The key of the cluster with this uid in this namespace.

    The namespace is part of it because anybody can write an owner reference with any uid: it counts in the cluster's
    own namespace alone.
    """
    return f"{namespace}/{uid}"


def record_name(cluster: Identity) -> str:
    """The name of the record of `cluster`: its name, and the beginning of its uid."""
    return f"{cluster.name}-{cluster.uid[:_UID_DIGITS].strip('-').lower()}"


def default_pool(pools: Mapping[str, bool]) -> str:
    """The pool that is meant where none is named: `default`, else the first one without GPUs, else the first.

    Args:
        pools: by name, in the manifest's order: whether it has GPUs. One at least.
    """
    plain = [name for name, has_gpus in pools.items() if not has_gpus]
    return DEFAULT_GROUP if DEFAULT_GROUP in pools else [*plain, *pools][0]


def is_past(row: Json) -> bool:
    """Whether a row of `status.pools` is of a removed pool whose pods are gone: it stays for its GPU-seconds alone."""
    return bool(row.get("removed")) and not row.get("pods")


@dataclass(frozen=True)
class Cluster(Identity):
    """A GpuDaskCluster as the operator acts on it.

    `image_is_default`: whether `spec.image` is the operator's default, because the manifest names none. `stock_uid`:
    of the DaskCluster of its name that it serves; empty: none.
    """

    generation: int
    deleting: bool
    spec: Spec
    status: Status
    image_is_default: bool = False
    stock_uid: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, for logs."""
        return f"{self.namespace}/{self.name}"

    @property
    def reference(self) -> dict[str, Any]:
        """The owner reference for objects of this cluster.

        `controller: true` so that `kubectl drain` moves the pods without --force; no `blockOwnerDeletion`,
        which would need one more permission.
        """
        return self.shared_reference | {"controller": True}

    @property
    def shared_reference(self) -> dict[str, Any]:
        """The owner reference for what it shares with other clusters: Kubernetes deletes it with the last of them."""
        return {"apiVersion": API_VERSION, "kind": KIND, "name": self.name, "uid": self.uid}


def parse(body: dict[str, Any]) -> Cluster:
    """The resource of a JSON object from the API server.

    Raises:
        InvalidSpecError: the spec or the name breaks a rule, or the spec is too large or too deep.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - see the module's docstring

    from gpudask.api.spec import Spec  # noqa: PLC0415

    metadata = body["metadata"]
    _check_name(metadata["name"])
    if broken := broken_limits(body.get("spec")):
        raise InvalidSpecError("; ".join(broken))
    try:
        spec = Spec.model_validate(body.get("spec") or {})
    except ValidationError as error:
        raise InvalidSpecError(advice(error, root="spec")) from error
    return Cluster(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        deleting="deletionTimestamp" in metadata,
        spec=spec,
        status=parse_status(body),
        stock_uid=stock_uid(metadata),
    )


def stock_uid(metadata: dict[str, Any], kind: str = STOCK_KIND) -> str:
    """The uid of the DaskCluster that the GpuDaskCluster with these metadata serves: its controller; empty: none.

    `kind`: of the stock object, DaskJob for a GpuDaskJob.
    """
    controller = _controller(metadata, STOCK_GROUP, kind)
    return _uid(controller) if controller.get("name") == metadata.get("name") else ""


def controller_uid(metadata: dict[str, Any]) -> str:
    """The uid of the GpuDaskCluster that controls the object with these metadata; empty: none does."""
    return _uid(_controller(metadata, GROUP, KIND))


def _controller(metadata: dict[str, Any], group: str, kind: str) -> Json:
    """The owner reference to the controller, where it is of this kind; anybody may have written it."""
    references = metadata.get("ownerReferences")
    for item in references if isinstance(references, list) else ():
        if (
            isinstance(item, dict)
            and item.get("kind") == kind
            and str(item.get("apiVersion")).startswith(f"{group}/")
            and item.get("controller") is True
        ):
            return item
    return {}


def _uid(reference: Json) -> str:
    uid = reference.get("uid")
    return uid if isinstance(uid, str) else ""


def parse_again(body: dict[str, Any], before: Cluster) -> Cluster:
    """The resource in a newer copy of the same generation: the spec is as it was."""
    return replace(before, deleting="deletionTimestamp" in body["metadata"], status=parse_status(body))


def parse_status(body: dict[str, Any]) -> Status:
    """The status as last written; empty where it is missing or of a foreign shape."""
    from pydantic import ValidationError  # noqa: PLC0415 - see the module's docstring

    from gpudask.api.status import Status  # noqa: PLC0415

    try:
        return Status.model_validate(body.get("status") or {})
    except ValidationError:
        return Status()


def _check_name(name: str) -> None:
    if len(name) > MAX_CLUSTER_NAME:
        raise InvalidSpecError(f"metadata.name: {NAME_LENGTH_ADVICE}")
    if re.fullmatch(CLUSTER_NAME, name) is None:
        raise InvalidSpecError(f"metadata.name: {NAME_ADVICE}")


# Messages in place of pydantic's that are about Python, by the type of its error.
_MESSAGES = {
    "missing": "required, but missing",
    "model_type": "expected an object",
    "dict_type": "expected an object",
    "list_type": "expected a list",
    "string_type": "expected a string: put the value in quotes",
    "timezone_aware": "a time needs its zone: write for example 2026-12-01T18:00:00Z",
    "datetime_from_date_parsing": "not a time: write for example 2026-12-01T18:00:00Z",
}


def advice(error: ValidationError, *, root: str) -> str:
    """The message about an object's errors, by field, in terms of YAML; `root`: the path of the object itself."""
    lines = []
    for item in error.errors():
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in item["loc"])
        field = item.get("ctx", {}).get("field", "")
        text = _MESSAGES.get(item["type"]) or item["msg"].removeprefix("Value error, ").removeprefix("Input ")
        lines.append(f"{root}{path}{field}".removeprefix(".") + f": {text}")
    return "; ".join(lines)


@dataclass(frozen=True, slots=True)
class _Extent:
    size: int  # bytes of its JSON, about
    depth: int  # objects and lists within each other


def broken_limits(spec: Any) -> list[str]:
    """The parts of `spec` that are too large or too deep, each with its field and what to write; empty: nothing is.

    The CRD has no such limits. They are checked before anything is made of the spec: that is recursive, and done at
    once, so a spec without end would stop the operator for everybody. The check costs no more than the limits allow.
    """
    if isinstance(spec, Outline):
        return list(spec.broken)
    broken = [text for field, part, limit in _parts(spec) if (text := too_large(field, part, limit))]
    return broken or [text for text in [too_large("spec", spec, MAX_SPEC_BYTES)] if text]


def _parts(spec: Any) -> Iterator[tuple[str, Any, int]]:
    """The parts in which anything may stand: field, value, bytes at most."""
    spec = _object(spec)
    yield "spec.config", spec.get("config"), MAX_CONFIG_BYTES
    yield "spec.template", spec.get("template"), MAX_TEMPLATE_BYTES
    yield "spec.scheduler.template", _object(spec.get("scheduler")).get("template"), MAX_TEMPLATE_BYTES
    pools = spec.get("pools")
    for number, pool in enumerate(pools if isinstance(pools, list) else ()):
        yield f"spec.pools[{number}].template", _object(pool).get("template"), MAX_TEMPLATE_BYTES


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def too_large(field: str, value: Any, most_bytes: int) -> str:
    """Why `value` is too large or too deep, with its field and what to write; empty: it is not."""
    if isinstance(value, Outline):
        return "; ".join(value.broken)
    extent = _measure(value, most_bytes)
    if extent.depth > MAX_DEPTH:
        return f"{field}: nested more than {MAX_DEPTH} levels deep: write it flatter"
    if extent.size > most_bytes:
        return (
            f"{field}: larger than {most_bytes // 1024} KiB: put what is large into a ConfigMap, a Secret or the image,"
            " and mount it"
        )
    return ""


class Outline(dict[str, Any]):
    """What is kept of a part of an object that is beyond the limits: its small parts. `broken`: as was said of it all.

    Objects are kept in memory as long as they exist, and 1.4 MB of empty objects are 40 MB there: some tens of them
    would have the operator killed, again and again. With `broken` the tenant reads of an outline what it would of the
    whole. It is never to be written: the rest of what people wrote would be lost.
    """

    def __init__(self, value: Any, broken: list[str]) -> None:
        super().__init__(_object(_outline(value, [_OUTLINE_BYTES], _OUTLINE_LEVELS)))
        self.broken = tuple(broken)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outline) and self.broken == other.broken and super().__eq__(other)

    def __ne__(self, other: object) -> bool:  # dict has its own
        return not self == other

    __hash__ = None  # as that of dict


def _outline(value: Any, left: list[int], levels: int) -> Any:
    """The parts of `value` that are small, the smallest first, up to so many bytes as are `left`; None: nothing."""
    extent = _measure(value, left[0])
    if extent.size <= left[0] and extent.depth <= MAX_DEPTH:
        left[0] -= extent.size
        return value
    if not levels or left[0] < _LEAST_BYTES:
        return None
    if isinstance(value, list):
        kept = [_outline(item, left, levels - 1) for item in value[:_OUTLINE_ITEMS]]
        return [item for item in kept if item is not None]
    if not isinstance(value, dict):
        return None
    most = left[0]
    parts = sorted(islice(value.items(), _OUTLINE_ITEMS), key=lambda part: _measure(part, most).size)
    outlines = ((key, _outline(item, left, levels - 1)) for key, item in parts)
    return {key: item for key, item in outlines if item is not None and len(str(key)) < _OUTLINE_ITEMS}


def bounded_spec(spec: Any) -> Any:
    """The spec of a cluster as it may be kept: its `Outline` where it is beyond the limits."""
    broken = broken_limits(spec)
    return spec if isinstance(spec, Outline) or not broken else Outline(spec, broken)


def bounded_part(field: str, value: Any, most_bytes: int) -> Any:
    """The same of a part with a limit of its own, as `too_large` has it."""
    broken = too_large(field, value, most_bytes)
    return value if isinstance(value, Outline) or not broken else Outline(value, [broken])


def with_spec(body: Json, spec: Any) -> Json:
    """`body` with the spec that may be kept of it, and without `managedFields`, which has the names of all fields."""
    if spec is body.get("spec"):
        return body
    metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    return body | {"metadata": metadata, "spec": spec}


def bounded_cluster(body: Json, known: Json | None = None) -> Json:
    """The GpuDaskCluster `body` as it may be kept. `known`: what is kept of it so far.

    A spec that is the same as then is not measured again: events come for each write of a status or an annotation. The
    status stays as it is, whatever its size: without it the ledger would begin anew.
    """
    spec = body.get("spec")
    is_known = known is not None and not isinstance(known.get("spec"), Outline) and known.get("spec") == spec
    return body if is_known else with_spec(body, bounded_spec(spec))


def _measure(value: Any, most_bytes: int) -> _Extent:
    """Measure the size and the depth of `value`, no further than just beyond the limits. Not recursive."""
    size, depth = 0, 0
    left = [(value, 1)]
    while left and size <= most_bytes and depth <= MAX_DEPTH:
        node, level = left.pop()
        if isinstance(node, dict):
            depth = max(depth, level)
            size += 2 + sum(len(str(key)) + 4 for key in node)  # "key":value, and of YAML any key
            left.extend((item, level + 1) for item in (node.values() if size <= most_bytes else ()))
        elif isinstance(node, list):
            depth = max(depth, level)
            size += 2 + len(node)
            left.extend((item, level + 1) for item in (node if size <= most_bytes else ()))
        else:
            size += _bytes(node)
    return _Extent(size, depth)


def _bytes(value: Any) -> int:
    if not isinstance(value, str):
        return 4
    return len(value) + 2 if value.isascii() else len(value.encode(errors="replace")) + 2
