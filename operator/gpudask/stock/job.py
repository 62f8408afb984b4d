"""A DaskJob as the spec of the GpuDaskJob that serves it.

The document is a tenant's: whatever it holds, the answer is a spec or an `UnservableError`. Its cluster is what a
DaskCluster with the same `spec` would be; its runner's pod is taken as it is, with the defaults that the pods of
converted clusters have.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from gpudask.api import Json
from gpudask.api.job import parse_job
from gpudask.api.resource import (
    API_VERSION,
    JOB_KIND,
    MAX_TEMPLATE_BYTES,
    InvalidSpecError,
    advice,
    bounded_part,
    bounded_spec,
    too_large,
)
from gpudask.stock.notes import Note, Notes
from gpudask.stock.pod import as_it_was, template_metadata
from gpudask.stock.served import SERVICE_TYPES, UnservableError, serve, without_nulls

# What a runner that asks for nothing is scheduled by. It has no limit, as it had none there.
_REQUESTS: Json = {"requests": {"cpu": "500m", "memory": "1Gi"}}
_UNKNOWN_BYTES = 1024
_KNOWN = {"spec": ("job", "cluster"), "spec.job": ("metadata", "spec"), "spec.cluster": ("metadata", "spec")}


@dataclass(frozen=True)
class ServedJob:
    """What serves a DaskJob.

    Attributes:
        spec: of the GpuDaskJob.
        metadata: its labels and annotations.
        notes: fields that were left out, and what was assumed of others.
        replaced: commands that are started by another name.
    """

    spec: Json
    metadata: Json
    notes: tuple[Note, ...]
    replaced: tuple[str, ...]


def serve_job(job: Json, service_types: Collection[str] = SERVICE_TYPES) -> ServedJob:
    """What serves the DaskJob `job`, which has `metadata` with name and namespace, and `spec`.

    `service_types`: that the limits allow, as of a DaskCluster's.

    Raises:
        UnservableError: no GpuDaskJob can; the message names the field.
    """
    metadata, source = job["metadata"], f"DaskJob {job['metadata']['name']}"
    template_too_large = too_large("spec.job", _object(job.get("spec")).get("job"), MAX_TEMPLATE_BYTES)
    if template_too_large:
        raise UnservableError(template_too_large)
    try:
        cluster = serve(_cluster(job), (), service_types)
    except UnservableError as error:
        raise UnservableError(_in_job(str(error), metadata["name"])) from error
    job = without_nulls(job)
    try:
        _DaskJob.model_validate(job)
    except ValidationError as error:
        raise UnservableError(advice(error, root="")) from error
    notes = Notes()
    for path, known in _KNOWN.items():
        for key in _at(job, path).keys() - set(known):
            notes.lost(source, f"{path}.{key}", "there is no such field")
    spec: Json = {
        "runner": {"template": _runner(job, source, notes)},
        "cluster": {"spec": {**cluster.spec, "network": {"allowFrom": [{"podSelector": {}}]}}},
    }
    body = {"apiVersion": API_VERSION, "kind": JOB_KIND, "metadata": {**metadata, "uid": "unknown"}, "spec": spec}
    try:
        parse_job(body)
    except InvalidSpecError as error:
        message = str(error).replace("spec.runner.template.spec", "spec.job.spec")
        raise UnservableError(message.replace("spec.runner.template.metadata", "spec.job.metadata")) from error
    inner = [replace(note, source=source, path=_in_job(note.path, metadata["name"])) for note in cluster.notes]
    replaced = tuple(_in_job(words, metadata["name"]) for words in cluster.replaced)
    return ServedJob(spec, template_metadata(metadata), (*notes.counted, *inner), replaced)


def bounded_stock_job(spec: Json) -> Json:
    """The spec of a DaskJob as it may be kept: outlines of what is too large, and of unknown fields their names."""
    cluster = spec.get("cluster")
    kept = _without_unknown(spec, _KNOWN["spec"])
    if "job" in spec:
        kept |= {"job": bounded_part("spec.job", spec["job"], MAX_TEMPLATE_BYTES)}
    if isinstance(cluster, dict):
        inner = {"spec": bounded_spec(cluster["spec"])} if "spec" in cluster else {}
        kept |= {"cluster": _without_unknown(cluster, _KNOWN["spec.cluster"]) | inner}
    return kept


def _without_unknown(part: Json, known: Collection[str]) -> Json:
    """`part`, of whose unknown fields only the names are told: the value of a large one is not kept."""
    is_large = {key for key, value in part.items() if key not in known and too_large("", value, _UNKNOWN_BYTES)}
    return {key: True if key in is_large else value for key, value in part.items()}


def _cluster(job: Json) -> Json:
    """The DaskCluster that the stock operator would make for the job: it has the job's labels and annotations, too."""
    metadata, written = job["metadata"], _at(job, "spec.cluster")
    own = _object(written.get("metadata"))
    merged = {key: {**_object(metadata.get(key)), **_object(own.get(key))} for key in ("labels", "annotations")}
    named = {key: metadata[key] for key in ("name", "namespace")}
    return {"kind": "DaskCluster", "metadata": named | merged, "spec": _object(written.get("spec"))}


def _runner(job: Json, source: str, notes: Notes) -> Json:
    """The pod template of the runner."""
    written = _at(job, "spec.job")
    pod, path = dict(written["spec"]), "spec.job.spec"
    containers = list(pod["containers"])
    policy = pod.pop("restartPolicy", None)
    if policy is None:
        notes.assumed(source, f"{path}.restartPolicy", "Never: a program that fails ends the job")
    elif policy != "Never":
        notes.lost(source, f"{path}.restartPolicy", f"{policy}: a program that fails ends the job")
    as_it_was(pod, containers[0])
    if not containers[0].get("resources"):
        containers[0] = containers[0] | {"resources": _REQUESTS}
        text = "not given: it asks for cpu 500m and memory 1Gi, and has no limit"
        notes.assumed(source, f"{path}.containers[0].resources", text)
    outer, inner = template_metadata(job["metadata"]), template_metadata(written.get("metadata") or {})
    keys = ("labels", "annotations")
    metadata = {key: found for key in keys if (found := {**outer.get(key, {}), **inner.get(key, {})})}
    return {**({"metadata": metadata} if metadata else {}), "spec": pod | {"containers": containers}}


def _in_job(text: str, name: str) -> str:
    """What is said of a cluster's field, of the same field in its job: `spec.worker` is `spec.cluster.spec.worker`."""
    text = text.removeprefix(f"DaskCluster {name}: ")
    return re.sub(r"(^|; )spec\b", r"\1spec.cluster.spec", text)


def _at(body: Json, path: str) -> Json:
    """The object at `path`; empty where there is none, or something else."""
    for key in path.split("."):
        body = _object(body.get(key))
    return body


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


# A DaskJob, as far as it is read here. Its cluster is read as a DaskCluster.


class _Metadata(BaseModel):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Container(BaseModel):
    name: str
    securityContext: Json | None = None  # noqa: N815 - Kubernetes' names


class _Pod(BaseModel):
    containers: Annotated[list[_Container], Field(min_length=1)]
    securityContext: Json | None = None  # noqa: N815


class _Runner(BaseModel):
    metadata: _Metadata | None = None
    spec: _Pod


class _Cluster(BaseModel):
    metadata: _Metadata | None = None
    spec: Json


class _Spec(BaseModel):
    job: _Runner
    cluster: _Cluster


class _DaskJob(BaseModel):
    metadata: _Metadata
    spec: _Spec
