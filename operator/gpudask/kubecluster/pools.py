"""Adding and removing pools of a running cluster: an edit of `spec.pools`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpudask.api.resource import InvalidSpecError, parse
from gpudask.kubecluster import overrides
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.pool_words import size
from gpudask.kubecluster.server import Server
from gpudask.kubecluster.writing import rewrite

Json = dict[str, Any]


def pool_of_words(name: str, n_workers: Any, gpus: Any, fields: Json) -> Json:
    """A pool from the short words and a pool's own fields.

    Args:
        name: the pool's.
        n_workers: pods of a CPU pool: a number, or the least and the most.
        gpus: the same of a GPU pool; a number alone is the most, from zero.
        fields: as in `spec.pools[]` of a manifest; they win.

    Raises:
        KubeClusterError: both words, or a size that is none.
    """
    if n_workers is not None and gpus is not None:
        raise KubeClusterError(
            f"pool {name!r} with n_workers and gpus",
            reason="a pool has GPUs or it has none",
            next_step="Add two pools, or write gpus= alone",
        )
    pool: Json = {"name": name}
    if gpus is not None:
        pool |= {"gpu": {"count": 1}, **size("gpus", (0, gpus) if isinstance(gpus, int) else gpus)}
    elif n_workers is not None:
        pool |= size("n_workers", n_workers)
    return pool | fields


async def add_pool(server: Server, name: str, pool: Json) -> Json:
    """Add `pool` to cluster `name`; the cluster as it is then.

    Raises:
        KubeClusterError: there is one of that name, it is not valid, or the server refuses.
    """

    def added(body: Json) -> list[Json]:
        if pool["name"] in overrides.pool_names(body):
            raise KubeClusterError(
                f"cluster {name!r} has a pool {pool['name']!r} already",
                reason=f"its pools are {', '.join(overrides.pool_names(body))}",
                next_step="Choose another name, or change the size of that one: scale(), adapt()",
            )
        return [*body["spec"]["pools"], pool]

    return await _edit(server, name, added)


async def remove_pool(server: Server, name: str, pool: str) -> Json:
    """Remove `pool` from cluster `name`; its pods finish what they run first. The cluster as it is then.

    Raises:
        KubeClusterError: there is no such pool, it is the last one, or the server refuses.
    """

    def left(body: Json) -> list[Json]:
        overrides.choose_pool(body, pool)
        pools = [item for item in body["spec"]["pools"] if item["name"] != pool]
        if not pools:
            raise KubeClusterError(
                f"pool {pool!r} is the last one of cluster {name!r}",
                reason="a cluster has at least one pool",
                next_step="Write suspend() to give up all pods, or close a cluster of your own",
            )
        return pools

    return await _edit(server, name, left)


async def _edit(server: Server, name: str, change: Callable[[Json], list[Json]]) -> Json:
    async def write(body: Json) -> Json:
        pools = change(body)
        _check(body, pools)
        version = body["metadata"]["resourceVersion"]
        return await server.merge(name, {"metadata": {"resourceVersion": version}, "spec": {"pools": pools}})

    return (await rewrite(server, name, write))[1]


def _check(body: Json, pools: list[Json]) -> None:
    try:
        parse({**body, "spec": body["spec"] | {"pools": pools}})
    except InvalidSpecError as error:
        raise KubeClusterError(
            "the pools would not be valid", reason=str(error), next_step="Correct what is named"
        ) from error
