"""`make_cluster_spec` and `make_worker_spec`: manifests in the stock operator's terms, for `custom_cluster_spec`.

Programs make one, change a field of a pod in it, and pass it on; here it is converted then. For a new program our own
manifest says the same in less: docs/reference.md.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from gpudask.api import Json
from gpudask.api.resource import STOCK_GROUP

STOCK_IMAGE = "ghcr.io/dask/dask:latest"  # the stock client's default, which a program relies on


def make_cluster_spec(  # noqa: PLR0917 - the stock client's order
    name: str,
    image: str = STOCK_IMAGE,
    n_workers: int | None = None,
    resources: Mapping[str, Any] | None = None,
    env: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    worker_command: str | Sequence[str] = "dask-worker",
    scheduler_service_type: str = "ClusterIP",
    idle_timeout: int = 0,
    jupyter: bool = False,
) -> Json:
    """A DaskCluster as the stock client's function of this name makes it.

    Args:
        name: the cluster's.
        image: of all its pods.
        n_workers: pods of its worker group.
        resources: of each pod: `requests` and `limits`.
        env: by name, or as a pod has it.
        worker_command: `dask worker` or `dask cuda worker`, with arguments.
        scheduler_service_type: ClusterIP, NodePort or LoadBalancer.
        idle_timeout: seconds; 0: never.
        jupyter: beside the scheduler.
    """
    return {
        "apiVersion": f"{STOCK_GROUP}/v1",
        "kind": "DaskCluster",
        "metadata": {"name": name},
        "spec": {
            "idleTimeout": idle_timeout,
            "worker": make_worker_spec(image, n_workers, resources, env, worker_command),
            "scheduler": make_scheduler_spec(name, env, resources, image, scheduler_service_type, jupyter),
        },
    }


def make_worker_spec(
    image: str = STOCK_IMAGE,
    n_workers: int | None = 3,
    resources: Mapping[str, Any] | None = None,
    env: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    worker_command: str | Sequence[str] = "dask-worker",
) -> Json:
    """A worker group's `spec.worker`, for `add_worker_group(custom_spec=...)`; arguments as `make_cluster_spec`."""
    words = shlex.split(worker_command) if isinstance(worker_command, str) else list(worker_command)
    args = [*words, "--name", "$(DASK_WORKER_NAME)"]
    return {"replicas": n_workers, "spec": {"containers": [_container("worker", image, args, env, resources)]}}


def make_scheduler_spec(  # noqa: PLR0917 - the stock client's order
    cluster_name: str,
    env: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    resources: Mapping[str, Any] | None = None,
    image: str = STOCK_IMAGE,
    scheduler_service_type: str = "ClusterIP",
    jupyter: bool = False,
) -> Json:
    """A DaskCluster's `spec.scheduler`; arguments as `make_cluster_spec`."""
    args = ["dask-scheduler", *(["--jupyter"] if jupyter else [])]
    selector = {"dask.org/cluster-name": cluster_name, "dask.org/component": "scheduler"}
    ports = {"tcp-comm": 8786, "http-dashboard": 8787}
    return {
        "spec": {"containers": [_container("scheduler", image, args, env, resources)]},
        "service": {
            "type": scheduler_service_type,
            "selector": selector,
            "ports": [{"name": port, "port": number, "targetPort": port} for port, number in ports.items()],
        },
    }


def _container(name: str, image: str, args: list[str], env: Any, resources: Mapping[str, Any] | None) -> Json:
    variables = [{"name": key, "value": value} for key, value in env.items()] if isinstance(env, Mapping) else env
    container = {"name": name, "image": image, "args": args, "env": list(variables or [])}
    return container | {"resources": dict(resources or {}), "ports": []}
