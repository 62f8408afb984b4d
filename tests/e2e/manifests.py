"""Small clusters, as the tests' nodes can run them."""

from __future__ import annotations

from gpudask.api import Json

from typing import Any

import pytest

from local.demo.overlay import localize
from tests.e2e.provider import chosen


IDLE_TIMEOUT = "4s"
# A Dask worker that is told to end while it closes anyway, because its scheduler went first, hangs until it is killed.
QUICK_END = {"spec": {"terminationGracePeriodSeconds": 5}}
# Of pods that the tests make by themselves: their namespaces enforce the restricted level of Pod Security.
RESTRICTED_POD = {"securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}}
RESTRICTED_CONTAINER = {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}
OPEN_TO_NEIGHBOURS = {"allowFrom": [{"podSelector": {}}]}
"""As `spec.network`: lets the pods of the cluster's own namespace in, such as a program that did not create it."""


def cluster(name: str, *pools: Json, **spec: Any) -> Json:
    """A GpuDaskCluster with these pools, made for small nodes; what is idle leaves soon."""
    manifest = localized(
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


def job(name: str, program: str, **spec: Any) -> Json:
    """A GpuDaskJob that runs a program beside a cluster of its own, of one CPU worker, unless `spec` says otherwise."""
    resources = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "512Mi"}}
    container = {"name": "runner", "args": ["python", "-c", program], "resources": resources}
    runner = {"template": {"spec": {"containers": [container]}}}
    body = {"runner": runner, "cluster": {"spec": cluster(name, cpu(replicas=1))["spec"]}, "backoff": "1s"} | spec
    return {"apiVersion": "gpudask.dev/v1alpha1", "kind": "GpuDaskJob", "metadata": {"name": name}, "spec": body}


def localized(manifest: Json) -> Json:
    """`manifest` for small nodes with pretended GPUs, and the tests' image. The argument is left alone.

    A test that wants GPU pods is skipped where no node offers GPUs.
    """
    made = localize(manifest)
    provider = chosen()
    made["spec"] |= {"image": provider.image, "imagePullPolicy": provider.pull_policy}
    if any("gpu" in pool for pool in made["spec"]["pools"]) and (reason := provider.lacks_gpus()):
        pytest.skip(reason)
    return made


def cpu(**fields: Any) -> Json:
    """A CPU pool of one pod, unless `fields` say otherwise."""
    size = {} if {"replicas", "autoscale"} & fields.keys() else {"replicas": 1}
    return {"name": "cpu", "nthreads": 2, **size, **fields}


def gpu(*, count: int = 1, **fields: Any) -> Json:
    """A GPU pool from zero to four pods, unless `fields` say otherwise."""
    size = {} if {"replicas", "autoscale"} & fields.keys() else {"autoscale": {"min": 0, "max": 4}}
    return {"name": "gpu", "gpu": {"count": count}, **size, **fields}
