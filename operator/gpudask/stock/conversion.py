"""Conversion of stock manifests, field by field: clusters, their worker groups and autoscalers as GpuDaskClusters."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, StrictInt, StrictStr, ValidationError

from gpudask.api import Json
from gpudask.api.addresses import COMM_PORT, DASHBOARD_PORT
from gpudask.api.pool import MAX_REPLICAS, POOL_NAME
from gpudask.api.resource import (
    API_VERSION,
    CLUSTER_NAME,
    DEFAULT_GROUP,
    KIND,
    MAX_CLUSTER_NAME,
    STOCK_GROUP,
    Cluster,
    advice,
    parse,
)
from gpudask.api.spec import SHORTEST_IDLE_SECONDS
from gpudask.stock import is_stock
from gpudask.stock.autoscale import Limits, read_limits
from gpudask.stock.notes import Notes
from gpudask.stock.pod import (
    POOL_LENGTH,
    Section,
    pool_fields,
    pool_name,
    preload_env,
    read_section,
    template_metadata,
)

_SERVICE_PORTS = (COMM_PORT, DASHBOARD_PORT)


class NotConvertibleError(ValueError):
    """The documents make no cluster; the message says which field is at fault and what to write."""


def convert(documents: list[Any], notes: Notes, *, check: Callable[[Cluster], object] | None = None) -> list[Json]:
    """The GpuDaskClusters that `documents` describe, one for each DaskCluster.

    Args:
        documents: of the stock operator; others are noted.
        notes: what has to be said.
        check: called with each cluster that comes out; it raises a ValueError where that cannot be used.

    Raises:
        NotConvertibleError: there is no DaskCluster, a field has another type than it must, or what comes out would be
            refused.
    """
    ours = [body for body in documents if is_stock(body)]
    clusters = [body for body in ours if body.get("kind") == "DaskCluster"]
    if not clusters:
        kinds = ", ".join(sorted({str(body.get("kind")) for body in documents if isinstance(body, dict)})) or "nothing"
        raise NotConvertibleError(
            f"no DaskCluster of {STOCK_GROUP} in the input, which has: {kinds}."
            " Give the cluster's own manifest, with its DaskWorkerGroups and DaskAutoscaler"
        )
    for body in ours:
        if wrong := _wrong_fields(body):
            raise NotConvertibleError(f"{_name_of(body)}: {wrong}")
    _name_others(documents, clusters, notes)
    return [_checked(_cluster(body, ours, notes), body, check) for body in clusters]


def convert_group(name: str, worker: Any, image: str, notes: Notes) -> Json:
    """The pool that a worker group's `spec.worker` asks for, in a cluster whose pods have `image`.

    Raises:
        NotConvertibleError: a field has another type than it must, or is missing.
    """
    source, path = f"worker group {name}", "custom_spec"
    body = {"kind": "DaskWorkerGroup", "metadata": {"name": name}, "spec": {"cluster": "", "worker": worker}}
    if wrong := _wrong_fields(body):
        raise NotConvertibleError(f"{source}: {wrong}")
    try:
        section = read_section(worker, source, path, notes, scheduler=False)
    except ValueError as error:
        raise NotConvertibleError(str(error)) from error
    if section.launch.protocol:
        notes.lost(source, f"{path}.spec.containers[0].args", f"--protocol {section.launch.protocol}: the cluster's")
    pool = pool_fields(pool_name(name), worker, section, source=source, path=path, notes=notes)
    return dict(_pruned({**pool, **_own(section, {"image": image})}))


def _name_others(documents: list[Any], clusters: list[Json], notes: Notes) -> None:
    known = {_key(body, body["metadata"]["name"]) for body in clusters}
    for body in documents:
        if not isinstance(body, dict) or body in clusters:
            continue
        part = is_stock(body) and body.get("kind") in ("DaskWorkerGroup", "DaskAutoscaler")
        if not part:
            notes.lost(_name_of(body), "kind", "only DaskCluster, DaskWorkerGroup and DaskAutoscaler are converted")
        elif _key(body, body["spec"]["cluster"]) not in known:
            notes.lost(_name_of(body), "spec.cluster", f"no DaskCluster {body['spec']['cluster']!r} is given")


def _cluster(body: Json, documents: list[Json], notes: Notes) -> Json:
    source, name = _name_of(body), body["metadata"]["name"]
    given = dict(body.get("spec") or {})
    parts = [part for part in documents if _key(part, part.get("spec", {}).get("cluster")) == _key(body, name)]
    groups = [(DEFAULT_GROUP, dict(given.pop("worker", None) or {}), source, _limits(body))]
    for part in parts:
        if part["kind"] == "DaskWorkerGroup":
            group = part["metadata"]["name"].removeprefix(f"{name}-")
            entry = (group, _of_group(part), _name_of(part), _limits(part))
            if group == DEFAULT_GROUP:  # read from a cluster: the stock operator made it of the cluster's own worker
                groups[0] = (*entry[:3], entry[3] or groups[0][3])
            else:
                groups.append(entry)
    autoscalers = [part for part in parts if part["kind"] == "DaskAutoscaler"]
    scheduler = dict(given.pop("scheduler", None) or {})
    idle_seconds = int(given.pop("idleTimeout", None) or 0)
    for key in given:
        notes.lost(source, f"spec.{key}", "there is no such field")
    try:
        head = read_section(scheduler, source, "spec.scheduler", notes, scheduler=True)
        sections = [read_section(part, named, "spec.worker", notes, scheduler=False) for _, part, named, _ in groups]
    except ValueError as error:
        raise NotConvertibleError(str(error)) from error
    spec = _spec(head, sections, body, notes)
    if idle_seconds:
        spec["idle"] = {"deleteAfter": f"{_long_enough(idle_seconds, source, notes)}s"}
    spec["scheduler"] = _pruned(
        {**_own(head, spec), "service": _service(scheduler.get("service") or {}, source, notes)}
    )
    taken: set[str] = set()
    spec["pools"] = []
    for (group, part, named, limits), section in zip(groups, sections, strict=True):
        its_name = _pool_name(group, taken, named, notes)
        pool = pool_fields(its_name, part, section, source=named, path="spec.worker", notes=notes, limits=limits)
        spec["pools"].append(_pruned({**pool, **_own(section, spec)}))
    _size_by_autoscaler(spec["pools"][0], autoscalers, notes)
    _hint_fence(spec["pools"], source, notes)
    metadata = {"name": _cluster_name(name, source, notes), "namespace": body["metadata"].get("namespace")}
    metadata |= template_metadata(body["metadata"])
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": _pruned(metadata), "spec": _pruned(spec)}


def _limits(part: Json) -> Limits | None:
    """The limits between which a group follows demand; None: it has a fixed size.

    Raises:
        NotConvertibleError: they cannot be read.
    """
    try:
        return read_limits(part["metadata"])
    except ValueError as error:
        raise NotConvertibleError(f"{_name_of(part)}: {error}") from error


def _of_group(part: Json) -> Json:
    """A group's worker; the stock operator gives the group's own labels and annotations to its pods, too."""
    worker = dict(part["spec"].get("worker") or {})
    outer, inner = template_metadata(part["metadata"]), worker.get("metadata") or {}
    keys = ("labels", "annotations")
    return worker | {"metadata": {key: {**outer.get(key, {}), **(inner.get(key) or {})} for key in keys}}


def _long_enough(idle_seconds: int, source: str, notes: Notes) -> int:
    if idle_seconds < SHORTEST_IDLE_SECONDS:
        notes.assumed(source, "spec.idleTimeout", f"{SHORTEST_IDLE_SECONDS:g} s, the least there is")
    return max(idle_seconds, int(SHORTEST_IDLE_SECONDS))


def _spec(head: Section, sections: list[Section], body: Json, notes: Notes) -> Json:
    """The fields that are said once for all pods."""
    every = [head, *sections]
    spec: Json = {"image": sections[0].image}
    for key in ("imagePullPolicy", "imagePullSecrets"):
        first = every[0].shared[key]
        if all(section.shared[key] == first for section in every):
            spec[key] = first
    if all(section.fields.get("env") == head.fields.get("env") for section in every):
        spec["env"] = head.fields.get("env")
    spec["template"] = {"metadata": template_metadata(body["metadata"])}
    protocols = {section.launch.protocol.removesuffix("://") for section in every} - {"", "tcp"}
    if protocols:
        spec["protocol"] = min(protocols)
    for other in sorted(protocols)[1:]:
        notes.lost(_name_of(body), "args", f"--protocol {other}: one protocol for the cluster, {min(protocols)}")
    return spec


def _own(section: Section, spec: Json) -> Json:
    """A section's fields, without what the spec says for all; the rest of `shared` goes into its template."""
    fields = dict(section.fields)
    if spec.get("env") is not None:
        fields.pop("env", None)
    if section.launch.preload or section.launch.preload_argv:
        fields["env"] = [*fields.get("env", []), *preload_env(section.launch)]
    pod = dict(section.template["spec"])
    if spec.get("imagePullSecrets") is None and section.shared["imagePullSecrets"]:
        pod["imagePullSecrets"] = section.shared["imagePullSecrets"]
    policy = section.shared["imagePullPolicy"]
    if spec.get("imagePullPolicy") is None and policy:
        containers = pod.get("containers") or []
        main = next((item for item in containers if item["name"] == "dask"), {"name": "dask"})
        others = [item for item in containers if item is not main]
        pod["containers"] = [{**main, "imagePullPolicy": policy}, *others]
    image = {} if section.image == spec["image"] else {"image": section.image}
    return {**image, **fields, "template": _pruned({"metadata": section.template["metadata"], "spec": pod})}


def _service(service: Json, source: str, notes: Notes) -> Json:
    result = {"type": service["type"]} if service.get("type") not in (None, "ClusterIP") else {}
    for port in service.get("ports") or []:
        if port.get("port") not in _SERVICE_PORTS or "nodePort" in port:
            ours = " and ".join(map(str, _SERVICE_PORTS))
            text = f"port {port.get('port')}: the Service has {ours}, node ports are Kubernetes' choice"
            notes.lost(source, "spec.scheduler.service.ports", text)
    for key in service:
        if key not in ("type", "ports", "selector"):
            notes.lost(source, f"spec.scheduler.service.{key}", "no field for it; service.annotations may do")
    return result


def _checked(made: Json, body: Json, check: Callable[[Cluster], object] | None) -> Json:
    metadata = {"namespace": "default", "uid": "unknown"} | made["metadata"]
    try:
        cluster = parse({**made, "metadata": metadata})
        if check is not None:
            check(cluster)
    except ValueError as error:
        raise NotConvertibleError(f"{_name_of(body)}: what comes of it is not valid: {error}") from error
    return made


def _pruned(value: Any) -> Any:
    """Without what is empty, but for a GPU pool's node selector and a pod's resources, whose defaults are not."""
    if not isinstance(value, dict):
        return value
    inner = {key: item if key in ("spec", "gpu", "env") else _pruned(item) for key, item in value.items()}
    return {key: item for key, item in inner.items() if key == "resources" or item not in (None, {}, [], "")}


def _key(body: Json, cluster: Any) -> tuple[str, Any]:
    return str(body.get("metadata", {}).get("namespace") or ""), cluster


def _size_by_autoscaler(pool: Json, autoscalers: list[Json], notes: Notes) -> None:
    """The stock autoscaler sizes the default group alone."""
    for extra in autoscalers[1:]:
        notes.lost(_name_of(extra), "spec.cluster", "one autoscaler a cluster: the first one holds")
    if not autoscalers:
        return
    spec = autoscalers[0].get("spec", {})
    least, most = spec.get("minimum") or 0, spec.get("maximum")
    if most is None:
        most = MAX_REPLICAS
        notes.assumed(_name_of(autoscalers[0]), "spec.maximum", f"not given: {most}, the most that a pool can have")
    if most < max(1, least):
        notes.assumed(_name_of(autoscalers[0]), "spec.maximum", f"{most}: raised to {max(1, least)}")
        most = max(1, least)
    pool.pop("replicas", None)
    pool["autoscale"] = {"min": least, "max": most}


def _hint_fence(pools: list[Json], source: str, notes: Notes) -> None:
    """Note, where GPU pools take plain tasks, what would let them follow GPU work."""
    for pool in pools:
        if "gpu" in pool and len(pools) > 1 and pool.get("accepts") == "any":
            advice = (
                'annotate GPU tasks (resources={"GPU": 1}), remove accepts, and write autoscale: {min: 0, max: ...}'
            )
            notes.hint(
                source, f"pools[{pool['name']}]", f"plain tasks run here as before; to follow GPU work, {advice}"
            )


def _name_of(body: Json) -> str:
    """An object, as notes name it."""
    metadata = body.get("metadata")
    return f"{body.get('kind')} {metadata.get('name', '?') if isinstance(metadata, dict) else '?'}"


def _pool_name(group: str, taken: set[str], source: str, notes: Notes) -> str:
    """The pool of a worker group, unlike those in `taken`, to which it is added."""
    name = pool_name(group)
    count = 2
    while name in taken:
        name = f"{name[: POOL_LENGTH - 2]}{count}"
        count += 1
    taken.add(name)
    assert re.fullmatch(POOL_NAME, name)
    if name != group:
        notes.assumed(
            source, "metadata.name", f"the pool is called {name}: a pool's name is 1 to 15 letters and digits"
        )
    return name


def _cluster_name(name: str, source: str, notes: Notes) -> str:
    """The cluster of a stock cluster."""
    plain = re.sub(r"[^-a-z0-9]", "-", name.lower()).lstrip("-0123456789")[:MAX_CLUSTER_NAME].strip("-")
    if plain != name:
        notes.assumed(source, "metadata.name", f"the cluster is called {plain}: letters, digits, hyphens, 35 at most")
    assert re.fullmatch(CLUSTER_NAME, plain or "x")
    return plain or "dask"


# The stock operator's resources, as far as they are read here.


class _Metadata(BaseModel):
    name: StrictStr
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Variable(BaseModel):
    name: str


class _Resources(BaseModel):
    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None


class _Container(BaseModel):
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[_Variable] | None = None
    ports: list[Json] | None = None
    resources: _Resources | None = None
    securityContext: Json | None = None  # noqa: N815 - Kubernetes' names


class _Pod(BaseModel):
    containers: list[_Container] | None = None
    securityContext: Json | None = None  # noqa: N815


class _Template(BaseModel):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Service(BaseModel):
    type: str | None = None
    ports: list[Json] | None = None


class _Part(BaseModel):
    replicas: StrictInt | None = None
    metadata: _Template | None = None
    spec: _Pod | None = None
    service: _Service | None = None


class _Cluster(BaseModel):
    idleTimeout: StrictInt | None = None  # noqa: N815
    worker: _Part | None = None
    scheduler: _Part | None = None


class _Group(BaseModel):
    cluster: str
    worker: _Part | None = None


class _Autoscaler(BaseModel):
    cluster: str
    minimum: StrictInt | None = None
    maximum: StrictInt | None = None


class _DaskCluster(BaseModel):
    metadata: _Metadata
    spec: _Cluster


class _DaskWorkerGroup(BaseModel):
    metadata: _Metadata
    spec: _Group


class _DaskAutoscaler(BaseModel):
    metadata: _Metadata
    spec: _Autoscaler


_SHAPES: dict[str, type[BaseModel]] = {
    "DaskCluster": _DaskCluster,
    "DaskWorkerGroup": _DaskWorkerGroup,
    "DaskAutoscaler": _DaskAutoscaler,
}


def _wrong_fields(body: Json) -> str:
    """The fields of a stock object that have another type than they must, and what is expected; empty: none."""
    shape = _SHAPES.get(str(body.get("kind")))
    if shape is None:
        return ""
    try:
        shape.model_validate(body)
    except ValidationError as error:
        return advice(error, root="")
    return ""
