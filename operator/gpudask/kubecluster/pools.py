"""A pool as a program asks for it: as its section of a manifest; and adding and removing one of a running cluster.

The arguments are those of `dask_kubernetes.operator.KubeCluster` where they mean the same: its worker groups are pools.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from gpudask.api import Json, resource
from gpudask.api.resource import InvalidSpecError, parse
from gpudask.kubecluster import overrides
from gpudask.kubecluster.errors import InvalidArgumentError, KubeClusterError

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import (
        Server,  # the command line writes manifests before it needs an API server
    )

# Names that people write for a resource -> what they mean.
_MEANT = {
    "cpu": "'cpu'", "cpus": "'cpu'", "cores": "'cpu'", "memory": "'memory'", "mem": "'memory'", "ram": "'memory'",
    "ephemeral-storage": "'ephemeral-storage'", "storage": "'ephemeral-storage'", "disk": "'ephemeral-storage'",
    "gpu": "gpus=8, beside resources", "gpus": "gpus=8, beside resources",
}  # fmt: skip
_CUDA = ("dask-cuda-worker", "dask cuda worker")
_PLAIN = ("dask-worker", "dask worker")


def size(argument: str, value: Any) -> Json:
    """`replicas` for a number of pods, `autoscale` for two.

    Raises:
        KubeClusterError: it is neither; `argument` is named.
    """
    numbers = [value] if _is_count(value) else list(value) if isinstance(value, tuple | list) else []
    if len(numbers) not in (1, 2) or not all(_is_count(number) for number in numbers):
        raise KubeClusterError(
            f"{argument}={value!r} is no size",
            reason="it is a number of pods, or the least and the most",
            next_step=f"Write {argument}=2, or {argument}=(0, 8) to follow demand",
        )
    if len(numbers) == 1:
        return {"replicas": numbers[0]}
    least, most = numbers
    if least > most or most < 1:
        raise KubeClusterError(
            f"{argument}={value!r} is no range",
            reason="the first is the least number of pods, the second the most, which is at least 1",
            next_step=f"Write {argument}=(0, 8)",
        )
    return {"autoscale": {"min": least, "max": most}}


def pod_resources(resources: Mapping[str, Any] | None) -> Json:
    """A pool's `resources`, from requests by name or from a container's `requests` and `limits`.

    Raises:
        KubeClusterError: GPUs are asked for, Kubernetes knows no such resource, or a limit says something else than the
            request.
    """
    if not resources:
        return {}
    asked = dict(resources)
    if set(asked) <= {"requests", "limits"}:
        requests, limits = dict(asked.get("requests") or {}), dict(asked.get("limits") or {})
        for name, limit in limits.items():
            if requests.get(name, limit) != limit:
                raise KubeClusterError(
                    f"resources with another limit than request of {name}",
                    reason="a pool has one number: it is the request, and for memory the limit too",
                    next_step=f"Write resources={{{name!r}: {limit!r}}}; for a limit of CPU, a pool's template",
                )
        asked = limits | requests
    gpus = [name for name in asked if name.startswith("nvidia.com/") or name.endswith("/gpu")]
    if gpus:
        raise KubeClusterError(
            f"resources with {', '.join(gpus)}",
            reason="that alone gives a pod a GPU, but no worker that uses it",
            next_step="Write gpus=8, or gpus=(0, 8); other devices: pools=[{'name': 'gpu', 'gpu':"
            " {'resourceName': 'nvidia.com/mig-1g.10gb'}}]",
        )
    from gpudask.api.base import PLAIN_RESOURCES, is_resource  # noqa: PLC0415 - the models take long to load

    if wrong := [name for name in asked if not is_resource(str(name))]:
        name = str(wrong[0])[:100]
        close = get_close_matches(name.lower(), _MEANT, n=1, cutoff=0.5)
        raise InvalidArgumentError(
            f"resources with {name!r}",
            reason=f"Kubernetes knows {', '.join(PLAIN_RESOURCES)}; others have a domain, as example.com/dongle",
            next_step=f"Did you mean {_MEANT[close[0]]}?" if close else "Write one of these, or leave it out",
        )
    return {"resources": asked}


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
        raise KubeClusterError(
            f"{argument}={value!r} is no length of time",
            reason="it is a number of seconds, or a text such as '1h30m'",
            next_step=f"Write {argument}=3600 or {argument}='1h'",
        ) from error
    return text


def env_list(env: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[Json]:
    """Environment variables by name as a pod has them; those that are so already stay.

    Raises:
        InvalidArgumentError: it is neither.
    """
    if isinstance(env, Mapping):
        return [{"name": str(name), "value": str(value)} for name, value in env.items()]
    if isinstance(env, str) or not isinstance(env, Iterable):
        raise _no_env(env)
    items = list(env)
    wrong = [item for item in items if not isinstance(item, Mapping) or not isinstance(item.get("name"), str)]
    if wrong:
        raise _no_env(wrong[0])
    return [dict(item) for item in items]


def _no_env(given: Any) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"env with {given!r:.100}",
        reason="it is a value for each name, or a list of variables as a pod has them",
        next_step="Write env={'LEVEL': '3'}, or env=[{'name': 'LEVEL', 'value': '3'}]",
    )


def extra_args(command: str | Sequence[str] | None) -> Json:
    """A pool's `extraArgs`, from the stock client's whole `worker_command`.

    Raises:
        KubeClusterError: it starts something else than `dask worker`.
    """
    if command is None:
        return {}
    parts = shlex.split(command) if isinstance(command, str) else [str(part) for part in command]
    line = " ".join(parts)
    if any(line.startswith(cuda) for cuda in _CUDA):
        raise KubeClusterError(
            f"worker_command={line!r}",
            reason="a GPU pool starts that by itself",
            next_step="Write gpus=8, and only what you add to it into pools=[{..., 'extraArgs': [...]}]",
        )
    for plain in _PLAIN:
        if line == plain or line.startswith(plain + " "):
            rest = parts[len(plain.split()) :]
            return {"extraArgs": rest} if rest else {}
    raise KubeClusterError(
        f"worker_command={line!r} is no `dask worker`",
        reason="the operator starts the workers, so that it knows their names and what they offer",
        next_step="Write arguments alone, as worker_command='dask worker --lifetime 1h', or replace the command in a"
        " pool's template: {'spec': {'containers': [{'name': 'dask', 'command': [...]}]}}",
    )


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


def one_of(pool: str | None, worker_group: str | None) -> str | None:
    """The pool that is meant by one of the two arguments.

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
    return resource.default_pool({pool["name"]: pool.get("gpu") is not None for pool in body["spec"]["pools"]})


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
        KubeClusterError: an argument cannot be used.
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

    return (await server.rewrite(name, write))[1]


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
