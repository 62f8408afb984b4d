"""The limits that administrators set users, `limits` of the chart, and violations of them by a spec.

The chart's admission policy holds the operator's account to the same; this names the spec's fields, before that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from gpudask.api.base import Model
from gpudask.api.pod_template import Template
from gpudask.api.pool import Pool
from gpudask.api.spec import Spec

TemplateField = Literal[
    "capabilities", "hostIPC", "hostNetwork", "hostPID", "hostPath", "hostPort", "privileged", "serviceAccountName"
]
_ASK = "or ask the operator's administrators for"
NO_IMAGE = (
    "spec.image: required here, because the operator has no default image: write the image of your pods, such as"
    f" registry.example/dask:1, {_ASK} defaults.image"
)


class Limits(Model):
    """The limits of an installation. By default none: the chart sets those that it documents.

    Of a spec alone it cannot be said whether it is within those of a namespace: `reconcile.namespace_limits` holds
    creations to them. `creations_per_second`: pods, of each namespace.
    """

    model_config = ConfigDict(extra="forbid")

    pods_per_cluster: Annotated[int, Field(ge=1)] | None = None
    gpus_per_cluster: Annotated[int, Field(ge=0)] | None = None
    pods_per_namespace: Annotated[int, Field(ge=1)] | None = None
    creations_per_second: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = None
    service_types: tuple[Literal["ClusterIP", "NodePort", "LoadBalancer"], ...] = (
        "ClusterIP",
        "NodePort",
        "LoadBalancer",
    )
    service_annotations: bool = True
    template_fields: tuple[TemplateField, ...] = (
        "capabilities",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostPath",
        "hostPort",
        "privileged",
        "serviceAccountName",
    )
    closed_namespaces: tuple[str, ...] = ()


def read(text: str) -> Limits:
    """Parse the limits from a JSON object; of an empty text, none.

    Raises:
        ValueError: it is no JSON, or no limits.
    """
    try:
        return Limits.model_validate(json.loads(text) if text else {})
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, item['loc'])) or 'all of it'}: {item['msg']}" for item in error.errors())
        raise ValueError("; ".join(wrong)) from error


def violations(spec: Spec, namespace: str, limits: Limits) -> list[str]:
    """The violations of `limits` by `spec`: each with its field, what came, and what to write."""
    return [
        *_of_namespace(namespace, limits),
        *_of_service(spec, limits),
        *_of_templates(spec, limits),
        *_of_sizes(spec, limits),
    ]


def runner_violations(template: Template, namespace: str, limits: Limits) -> list[str]:
    """The same of the pod template of a job's runner."""
    return [*_of_namespace(namespace, limits), *_of_template("spec.runner", template, limits)]


def _of_namespace(namespace: str, limits: Limits) -> Iterator[str]:
    if namespace in limits.closed_namespaces:
        yield f"metadata.namespace: no clusters run in {namespace}: use another, {_ASK} limits.closedNamespaces"


def _of_service(spec: Spec, limits: Limits) -> Iterator[str]:
    service = spec.scheduler.service
    if service.type not in limits.service_types:
        allowed = ", ".join(limits.service_types)
        yield (
            f"spec.scheduler.service.type: {service.type} is not allowed here: write {allowed}, {_ASK}"
            " limits.serviceTypes"
        )
    if service.annotations and not limits.service_annotations:
        yield f"spec.scheduler.service.annotations: none is allowed here: remove them, {_ASK} limits.serviceAnnotations"


def _of_templates(spec: Spec, limits: Limits) -> Iterator[str]:
    places = [("spec", spec.template), ("spec.scheduler", spec.scheduler.template)]
    places += [(f"spec.pools[{pool.name}]", pool.template) for pool in spec.pools]
    for place, template in places:
        yield from _of_template(place, template, limits)
    for pool in spec.pools:
        if pool.gpu is not None and pool.gpu.kernel_cache and "hostPath" not in limits.template_fields:
            place = f"spec.pools[{pool.name}].gpu.kernelCache"
            yield f"{place}: hostPath is not allowed here: remove it, {_ASK} limits.templateFields"


def _of_template(place: str, template: Template, limits: Limits) -> Iterator[str]:
    for field in sorted(_fields(template) - set(limits.template_fields)):
        yield f"{place}.template.spec: {field} is not allowed here: remove it, {_ASK} limits.templateFields"


def _fields(template: Template) -> set[str]:
    """The `TemplateField`s that a template uses. It may have any shape: what cannot be read is used by nobody."""
    spec = template.spec
    used = {field for field in ("hostIPC", "hostNetwork", "hostPID") if spec.get(field)}
    if spec.get("serviceAccountName") or spec.get("serviceAccount"):
        used.add("serviceAccountName")
    if any(volume.get("hostPath") is not None for volume in _objects(spec.get("volumes"))):
        used.add("hostPath")
    for kind in ("containers", "initContainers"):
        for container in _objects(spec.get(kind)):
            used |= _of_container(container)
    return used


def _of_container(container: dict[str, Any]) -> set[str]:
    used = {"hostPort"} if any(port.get("hostPort") for port in _objects(container.get("ports"))) else set()
    context = container.get("securityContext")
    if isinstance(context, dict):
        capabilities = context.get("capabilities")
        used |= {"privileged"} if context.get("privileged") else set()
        used |= {"capabilities"} if isinstance(capabilities, dict) and capabilities.get("add") else set()
    return used


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _of_sizes(spec: Spec, limits: Limits) -> Iterator[str]:
    pods = {pool.name: _most_pods(spec, pool) for pool in spec.pools}
    total = sum(pods.values())
    if limits.pods_per_cluster is not None and total > limits.pods_per_cluster:
        yield (
            f"spec.pools: they may grow to {total} pods together, and a cluster has {limits.pods_per_cluster} at most"
            f" here: lower replicas or autoscale.max, {_ASK} limits.podsPerCluster"
        )
    gpus = sum(pods[pool.name] * pool.gpu.count for pool in spec.pools if pool.gpu is not None)
    if limits.gpus_per_cluster is not None and gpus > limits.gpus_per_cluster:
        yield (
            f"spec.pools: they may grow to {gpus} GPUs together, and a cluster has {limits.gpus_per_cluster} at most"
            f" here: lower replicas or autoscale.max, {_ASK} limits.gpusPerCluster"
        )


def _most_pods(spec: Spec, pool: Pool) -> int:
    """The number of pods that the pool may ever have: by its own fields, or by an override's, ended or not."""
    own = pool.autoscale.max if pool.autoscale is not None else 1 if pool.replicas is None else pool.replicas
    overrides = [override for override in spec.overrides if override.pool == pool.name]
    return max([own, *(size for item in overrides for size in (item.replicas, item.max) if size is not None)])
