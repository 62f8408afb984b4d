"""The objects that attacks are made of."""

from __future__ import annotations

from gpudask.api import Json

from typing import Any

from gpudask.api.resource import API_VERSION, KIND, LABEL_CLUSTER, LABEL_POOL
from tests.builders import a_manifest, a_pool
from tests.hostile.attack import OWN
from tests.planning.builders import gpu_pool

COMPONENT = "dask.org/component"


def pod(name: str, *, labels: Json | None = None, spec: Json | None = None, **metadata: Any) -> Json:
    """A pod that says that it belongs to the attackers' own cluster."""
    known = {"name": name, "labels": {LABEL_CLUSTER: OWN, **(labels or {})}, **metadata}
    containers = {"containers": [{"name": "dask", "image": "i"}], **(spec or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": known, "spec": containers}


def worker(name: str, *, pool: str = "cpu", uid: str = "@OWN_UID@", **metadata: Any) -> Json:
    """A pod that says that the cluster `uid` controls it, as a worker."""
    annotations = {"gpudask.dev/dask-name": f"{name}-abcde", **metadata.pop("annotations", {})}
    labels = {LABEL_POOL: pool, COMPONENT: "worker"}
    return pod(name, labels=labels, annotations=annotations, ownerReferences=[owner(uid)], **metadata)


def owner(uid: str, **fields: Any) -> Json:
    """An owner reference to a GpuDaskCluster."""
    return {"apiVersion": API_VERSION, "kind": KIND, "name": OWN, "uid": uid, "controller": True} | fields


def plain(kind: str, name: str, version: str = "v1", **fields: Any) -> Json:
    """An object of another kind, with the operator's label."""
    metadata = {"name": name, "labels": {LABEL_CLUSTER: OWN}, **fields.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def cluster(name: str, *pools: Json, metadata: Json | None = None, **spec: Any) -> Json:
    """A GpuDaskCluster of the attackers: without `pools` one CPU pod, and a GPU pool from zero."""
    body = a_manifest(*(pools or (a_pool(replicas=1), gpu_pool())), name=name, **spec)
    body["metadata"] |= metadata or {}
    return body
