"""What the client part of a program asks for, by the pools of its cluster. Pure."""

from __future__ import annotations

from gpudask.api import Json
from gpudask.api.pool import Pool
from gpudask.kubecluster.errors import KubeClusterError, KubeClusterValueError


def asked_of(body: Json, pool: str | None) -> dict[str, float]:
    """Nothing of each resource that a GPU pool's workers offer: to be on one of them, and hold no device.

    A program's tasks find all of the pool's GPUs free, also where it has a single one. It is demand all the same: the
    pool starts from zero for it, and keeps the pod.

    Args:
        body: the cluster.
        pool: one of its pools; None: the one with the fewest GPUs a pod.

    Raises:
        KubeClusterError: there is no such pool, or another one offers the same.
    """
    pools = [Pool.model_validate(section) for section in body["spec"]["pools"]]
    with_gpus = sorted((each for each in pools if each.gpu is not None), key=lambda each: each.gpus_per_pod)
    if not with_gpus:
        raise KubeClusterError(
            "nothing can run beside the data on a GPU",
            reason=f"no pool of {_listed(pools)} has GPUs",
            next_step="Add one: cluster.add_pool('gpu', gpus=1)",
        )
    if pool is not None and pool not in {each.name for each in with_gpus}:
        is_there = pool in {each.name for each in pools}
        raise KubeClusterValueError(
            f"pool={pool!r}",
            reason="it has no GPUs" if is_there else "there is no such pool",
            next_step=f"Write one of {_listed(with_gpus)}, or leave it out",
        )
    chosen = next(each for each in with_gpus if pool in (None, each.name))
    offered = chosen.offered_resources
    if not offered:
        raise KubeClusterError(
            f"pool {chosen.name} cannot be asked for",
            reason="its workers offer nothing",
            next_step="Take `offers: {}` out of the pool, or name a resource there",
        )
    same = [each for each in pools if each is not chosen and offered.keys() <= each.offered_resources.keys()]
    if pool is not None and same:
        raise KubeClusterValueError(
            f"pool={pool!r}",
            reason=f"pool {same[0].name} offers {', '.join(offered)} as well, and a task cannot tell them apart",
            next_step=f"Write offers: {{GPU: 1, {pool.upper()}: 1}} in pool {pool}, or leave pool= out",
        )
    return dict.fromkeys(offered, 0.0)


def _listed(pools: list[Pool]) -> str:
    return ", ".join(each.name for each in pools)
