"""Small clusters for the real, small machine."""

from __future__ import annotations

from typing import Any

from local.demo.overlay import localize

Json = dict[str, Any]


def cluster(name: str, *pools: Json, **spec: Any) -> Json:
    """A GpuDaskCluster with these pools, made for the local nodes."""
    return localize(
        {
            "apiVersion": "gpudask.dev/v1alpha1",
            "kind": "GpuDaskCluster",
            "metadata": {"name": name},
            "spec": {"image": "replaced", "pools": [dict(pool) for pool in pools], **spec},
        }
    )


def cpu(**fields: Any) -> Json:
    """A CPU pool of one pod, unless `fields` say otherwise."""
    size = {} if {"replicas", "autoscale"} & fields.keys() else {"replicas": 1}
    return {"name": "cpu", "nthreads": 2, **size, **fields}


def gpu(*, count: int = 1, **fields: Any) -> Json:
    """A GPU pool from zero to four pods, unless `fields` say otherwise."""
    size = {} if {"replicas", "autoscale"} & fields.keys() else {"autoscale": {"min": 0, "max": 4}}
    return {"name": "gpu", "gpu": {"count": count}, **size, **fields}
