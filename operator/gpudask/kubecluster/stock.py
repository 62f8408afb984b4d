"""Words of `dask_kubernetes.operator.KubeCluster` that are others here: worker groups are pools. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpudask.api import stock
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.pool_words import env_list, extra_args, pod_resources, size

Json = dict[str, Any]


def one_of(pool: str | None, worker_group: str | None) -> str | None:
    """The pool that is meant by one of the two words.

    Raises:
        KubeClusterError: both are given, and differ.
    """
    if pool is not None and worker_group not in (None, pool):
        raise KubeClusterError(
            f"pool={pool!r} beside worker_group={worker_group!r}",
            reason="both name the pool",
            next_step="Write pool= alone",
        )
    return pool if worker_group is None else worker_group


def default_pool(body: Json) -> str:
    """The pool of a cluster that the stock client means when it names none, as the mirror has it."""
    return stock.default_pool({pool["name"]: pool.get("gpu") is not None for pool in body["spec"]["pools"]})


def pool_of_group(
    name: str,
    *,
    n_workers: int,
    image: str | None,
    resources: Mapping[str, Any] | None,
    worker_command: str | Sequence[str] | None,
    env: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
    custom_spec: Any,
) -> Json:
    """The pool that `add_worker_group` asks for.

    Raises:
        KubeClusterError: a word cannot be used.
    """
    if custom_spec is not None:
        raise KubeClusterError(
            "add_worker_group with custom_spec",
            reason="that is a whole pod of the stock operator's, and this one writes its pods itself",
            next_step=f"Write add_pool({name!r}, n_workers={n_workers}, template={{'spec': ...}}) with what you add to"
            " its pods",
        )
    return {
        "name": name,
        **size("n_workers", n_workers),
        **({"image": image} if image else {}),
        **pod_resources(resources),
        **extra_args(worker_command),
        **({"env": env_list(env)} if env else {}),
    }
