"""Small clusters for the real, small machine."""

from __future__ import annotations

from gpudask.api.json_object import Json

from typing import Any

from local.demo.overlay import localize


IDLE_TIMEOUT = "4s"
# A Dask worker that is told to end while it closes anyway, because its scheduler went first, hangs until it is killed.
QUICK_END = {"spec": {"terminationGracePeriodSeconds": 5}}
OPEN_TO_NEIGHBOURS = {"allowFrom": [{"podSelector": {}}]}
"""As `spec.network`: lets the pods of the cluster's own namespace in, such as a program that did not create it."""


def cluster(name: str, *pools: Json, **spec: Any) -> Json:
    """A GpuDaskCluster with these pools, made for the local nodes; what is idle leaves soon."""
    manifest = localize(
        {
            "apiVersion": "gpudask.dev/v1alpha1",
            "kind": "GpuDaskCluster",
            "metadata": {"name": name},
            "spec": {"image": "replaced", "template": QUICK_END, "pools": [dict(pool) for pool in pools], **spec},
        }
    )
    for pool, written in zip(manifest["spec"]["pools"], pools, strict=True):
        if "autoscale" in pool:
            pool["autoscale"]["idleTimeout"] = written["autoscale"].get("idleTimeout", IDLE_TIMEOUT)
    return manifest


def cpu(**fields: Any) -> Json:
    """A CPU pool of one pod, unless `fields` say otherwise."""
    size = {} if {"replicas", "autoscale"} & fields.keys() else {"replicas": 1}
    return {"name": "cpu", "nthreads": 2, **size, **fields}


def gpu(*, count: int = 1, **fields: Any) -> Json:
    """A GPU pool from zero to four pods, unless `fields` say otherwise."""
    size = {} if {"replicas", "autoscale"} & fields.keys() else {"autoscale": {"min": 0, "max": 4}}
    return {"name": "gpu", "gpu": {"count": count}, **size, **fields}
