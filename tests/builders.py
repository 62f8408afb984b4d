"""Builders of the resource: the smallest valid one, changed by what a test is about."""

from __future__ import annotations

from gpudask.api import Json

from typing import Any

from gpudask.api.resource import API_VERSION, KIND, Cluster, parse
from gpudask.api.pool import Pool
from gpudask.api.spec import Spec


def a_pool(name: str = "cpu", **fields: Any) -> Json:
    """A pool as a user writes it: `a_pool("gpu", gpu={"count": 1})`."""
    return {"name": name} | fields


def a_spec(*pools: Json, **fields: Any) -> Json:
    """A spec as a user writes it, with one CPU pool unless pools are given."""
    return {"image": "registry.example/dask:1", "pools": list(pools) or [a_pool()]} | fields


def a_manifest(*pools: Json, name: str = "demo", **fields: Any) -> Json:
    """A manifest as a user writes it."""
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": a_spec(*pools, **fields)}


def a_cluster(*pools: Json, name: str = "demo", **fields: Any) -> Cluster:
    """The cluster that the operator makes of it."""
    body = a_manifest(*pools, name=name, **fields)
    body["metadata"] |= {"namespace": "default", "uid": f"uid-of-{name}", "generation": 1}
    return parse(body)


def parsed_spec(*pools: Json, **fields: Any) -> Spec:
    return Spec.model_validate(a_spec(*pools, **fields))


def parsed_pool(name: str = "cpu", **fields: Any) -> Pool:
    return Pool.model_validate(a_pool(name, **fields))
