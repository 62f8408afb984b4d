"""A pool as a program asks for it: as its section of a manifest; and adding and removing one of a running cluster.

The arguments are those of `dask_kubernetes.operator.KubeCluster` where they mean the same: its worker groups are pools.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpudask.api import Json, resource
from gpudask.api.resource import InvalidSpecError, parse
from gpudask.kubecluster import overrides
from gpudask.kubecluster.errors import KubeClusterError, KubeClusterValueError
from gpudask.kubecluster.stock.worker import read_worker
from gpudask.stock.notes import Notes
from gpudask.stock.pod import pool_name

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import (
        Server,  # the command line writes manifests before it needs an API server
    )

logger = logging.getLogger(__name__)


def size(argument: str, value: Any) -> Json:
    """`replicas` for a number of pods, `autoscale` for two.

    Raises:
        KubeClusterError: it is neither; `argument` is named.
    """
    numbers = [value] if _is_count(value) else list(value) if isinstance(value, tuple | list) else []
    if len(numbers) not in (1, 2) or not all(_is_count(number) for number in numbers):
        raise KubeClusterValueError(
            f"{argument}={value!r} is no size",
            reason="it is a number of pods, or the least and the most",
            next_step=f"Write {argument}=2, or {argument}=(0, 8) to follow demand",
        )
    if len(numbers) == 1:
        return {"replicas": numbers[0]}
    least, most = numbers
    if least > most or most < 1:
        raise KubeClusterValueError(
            f"{argument}={value!r} is no range",
            reason="the first is the least number of pods, the second the most, which is at least 1",
            next_step=f"Write {argument}=(0, 8)",
        )
    return {"autoscale": {"min": least, "max": most}}


def duration(argument: str, value: Any) -> str:
    """A length of time as a manifest has it, of seconds or of such a text.

    Raises:
        KubeClusterError: it is neither; `argument` is named.
    """
    from gpudask.api.base import seconds  # noqa: PLC0415 - the models take long to load

    try:
        text = value if isinstance(value, str) else _in_seconds(value)
        seconds(text)
    except (TypeError, ValueError) as error:
        raise KubeClusterValueError(
            f"{argument}={value!r} is no length of time",
            reason="it is a number of seconds, or a text such as '1h30m'",
            next_step=f"Write {argument}=3600 or {argument}='1h'",
        ) from error
    return text


def env_list(env: Any) -> list[Json]:
    """Environment variables by name as a pod has them; those that are so already stay.

    Raises:
        KubeClusterValueError: it is neither.
    """
    if isinstance(env, Mapping):
        return [{"name": str(name), "value": str(value)} for name, value in env.items()]
    items = env if isinstance(env, list | tuple) else [env]
    wrong = [item for item in items if not isinstance(item, Mapping) or not isinstance(item.get("name"), str)]
    if wrong:
        raise KubeClusterValueError(
            f"env with {wrong[0]!r:.100}",
            reason="it is a value for each name, or a list of variables as a pod has them",
            next_step="Write env={'LEVEL': '3'}, or env=[{'name': 'LEVEL', 'value': '3'}]",
        )
    return [dict(item) for item in items]


def pool_of_arguments(name: str, n_workers: Any, gpus: Any, fields: Json) -> Json:
    """A pool from the short arguments and a pool's own fields.

    Args:
        name: the pool's.
        n_workers: pods of a CPU pool: a number, or the least and the most.
        gpus: the same of a GPU pool; a number alone is the most, from zero.
        fields: as in `spec.pools[]` of a manifest; they win.

    Raises:
        KubeClusterError: both, or a size that is none.
    """
    if n_workers is not None and gpus is not None:
        raise KubeClusterValueError(
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


def one_of(pool: str | None, worker_group: str | None) -> str | None:
    """The pool that is meant by one of the two arguments.

    Raises:
        KubeClusterError: both are given, and differ.
    """
    if pool is not None and worker_group not in (None, pool):
        raise KubeClusterValueError(
            f"pool={pool!r} beside worker_group={worker_group!r}",
            reason="both name the pool",
            next_step="Write pool= alone",
        )
    return pool if worker_group is None else worker_group


def default_pool(body: Json) -> str:
    """The pool of a cluster that the stock client means when it names none, as the mirror has it."""
    return resource.default_pool({pool["name"]: pool.get("gpu") is not None for pool in body["spec"]["pools"]})


def pool_of_word(body: Json, pool: str | None) -> str:
    """The pool of the cluster `body` that a program means: without one or by `default` the default one, as there.

    Raises:
        KubeClusterError: no such pool.
    """
    if pool is None or pool == resource.DEFAULT_GROUP:
        return default_pool(body)
    return overrides.choose_pool(body, pool_of_group_name(body, pool))


def pool_of_group_name(body: Json, group: str) -> str:
    """The pool that `add_worker_group` has made of a group of this name; the name as it is where there is none."""
    names, plain = overrides.pool_names(body), pool_name(group)
    return plain if group not in names and plain in names else group


def pool_of_group(  # noqa: PLR0917 - the stock client's order
    name: str,
    n_workers: int,
    image: str | None,
    resources: Mapping[str, Any] | None,
    worker_command: str | Sequence[str] | None,
    env: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
    custom_spec: Any,
    body: Json,
) -> Json:
    """The pool that `add_worker_group` asks for; what it leaves out is as in the default pool of the cluster `body`.

    Raises:
        KubeClusterError: an argument cannot be used.
    """
    if custom_spec is not None:
        return _custom_group(name, custom_spec, (body.get("spec") or {}).get("image", ""))
    default: Json = overrides.section_of(body, default_pool(body)) if body.get("spec") else {}
    worker = read_worker(resources, worker_command)
    pool: Json = {"name": pool_name(name), **size("n_workers", n_workers)}
    taken = [] if resources else ["resources", "template"]
    taken += [] if worker_command else ["extraArgs", "offers", "nthreads"]
    if worker.has_gpus:
        pool |= worker.gpu_fields
    elif not resources and not worker_command:
        taken += ["gpu", "accepts"]
    pool |= {key: default[key] for key in taken if key in default}
    pool |= worker.fields | ({"image": image} if image else {})
    variables = [*(env_list(env) if env else default.get("env", [])), *worker.fields.get("env", [])]
    return pool | ({"env": variables} if variables else {})


def _custom_group(name: str, worker: Any, image: str) -> Json:
    from gpudask.stock import conversion  # noqa: PLC0415 - as in manifest.py

    notes = Notes()
    try:
        pool = conversion.convert_group(name, worker, image, notes)
    except conversion.NotConvertibleError as error:
        raise KubeClusterValueError(
            f"add_worker_group({name!r}) with this custom_spec",
            reason=str(error),
            next_step="Write what make_worker_spec() returns, or add_pool() with the fields of a pool",
        ) from error
    for note in notes.lost_ones:
        logger.warning("gpudask: %s", note)
    return pool


async def add_pool(server: Server, name: str, pool: Json) -> Json:
    """Add `pool` to cluster `name`; the cluster as it is then.

    Raises:
        KubeClusterError: there is one of that name, it is not valid, or the server refuses.
    """

    async def write(body: Json) -> Json:
        if pool["name"] in overrides.pool_names(body):
            raise KubeClusterError(
                f"cluster {name!r} has a pool {pool['name']!r} already",
                reason=f"its pools are {', '.join(overrides.pool_names(body))}",
                next_step="Choose another name, or change the size of that one: scale(), adapt()",
            )
        return await _put(server, body, [*body["spec"]["pools"], pool])

    return (await server.rewrite(name, write))[1]


async def remove_pool(server: Server, name: str, group: str) -> Json:
    """Remove the pool that `group` names from cluster `name`; its pods finish what they run first.

    Its size goes with it, in the same write, so that a refusal changes nothing; but not one that others set as well.

    Args:
        server: where.
        name: the cluster's.
        group: the pool's name, or that of the group from which `add_worker_group` made it.

    Returns:
        the cluster as it is then.

    Raises:
        KubeClusterError: there is no such pool, it is the last one, another falls back to it, or the server refuses.
    """

    async def write(body: Json) -> Json:
        pool = overrides.choose_pool(body, pool_of_group_name(body, group))
        pools = [item for item in body["spec"]["pools"] if item["name"] != pool]
        if not pools:
            raise KubeClusterError(
                f"pool {pool!r} is the last one of cluster {name!r}",
                reason="a cluster has at least one pool",
                next_step="Write suspend() to give up all pods, or close a cluster of your own",
            )
        return await _put(server, body, pools, _without_size(body, pool))

    return (await server.rewrite(name, write))[1]


def _without_size(body: Json, pool: str) -> Json:
    """The merge patch that removes the size of `pool`; empty where there is none, or others set it as well."""
    if overrides.entry_of(body, pool) is None or overrides.other_owners(body, pool):
        return {}
    patch = overrides.replaced(body, {pool: None}, {})
    # An empty list would be this write's own: sizes could not be let go of by apply then.
    return {**patch, "spec": {"overrides": patch["spec"]["overrides"] or None}}


async def _put(server: Server, body: Json, pools: list[Json], patch: Json | None = None) -> Json:
    """Make `pools` those of the cluster that was read as `body`, in one write with `patch`; the answer."""
    _check(body, pools)
    new = {"metadata": {"resourceVersion": body["metadata"]["resourceVersion"]}, "spec": {}} | (patch or {})
    return await server.merge(body["metadata"]["name"], new | {"spec": new["spec"] | {"pools": pools}})


def _check(body: Json, pools: list[Json]) -> None:
    try:
        parse({**body, "spec": body["spec"] | {"pools": pools}})
    except InvalidSpecError as error:
        raise KubeClusterError(
            "the pools would not be valid", reason=str(error), next_step="Correct what is named"
        ) from error


def _in_seconds(value: Any) -> str:
    if isinstance(value, bool) or value < 0:
        raise ValueError(value)
    return f"{value:.3f}".rstrip("0").rstrip(".") + "s"


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
