"""The schema of the stock operator's resources, as far as they are read here."""

from __future__ import annotations

from pydantic import BaseModel, StrictInt, ValidationError

from gpudask.api.json_object import Json
from gpudask.api.resource import advice


class _Metadata(BaseModel):
    name: str
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


def misshapen(body: Json) -> str:
    """The fields of a stock object that have another type than they must, and what is expected; empty: none."""
    shape = _SHAPES.get(str(body.get("kind")))
    if shape is None:
        return ""
    try:
        shape.model_validate(body)
    except ValidationError as error:
        return advice(error, root="")
    return ""
