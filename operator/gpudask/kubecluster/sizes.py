"""Sizes as this client writes them to the API server: `KubeCluster`, a hold, and the command line."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING, Any

from gpudask.kubecluster import overrides
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.writing import rewrite

if TYPE_CHECKING:
    from gpudask.kubecluster.overrides import Entries, Notes
    from gpudask.kubecluster.server import Server

Json = dict[str, Any]


async def set_size(server: Server, name: str, n: int | None, pool: str | None) -> Json:
    """Set `pool` of cluster `name` to `n` pods, or give its size back where `n` is None. The cluster as it is then.

    Raises:
        KubeClusterError: no such pool, several and none named, others set it too, or the API server refuses.
    """

    async def write(body: Json) -> Json:
        chosen = overrides.choose_pool(body, pool)
        if n is None:
            refuse_shared(body, chosen)
            return await put(server, body, {chosen: None})
        return await put(server, body, {chosen: {"pool": chosen, "replicas": n, "by": user()}})

    return (await rewrite(server, name, write))[1]


async def set_limits(server: Server, name: str, minimum: int | None, maximum: int | None, pool: str | None) -> Json:
    """Let `pool` follow demand between limits; one that is None is the manifest's. The cluster as it is then.

    Raises:
        KubeClusterError: as `set_size`, or the pool's manifest has no maximum and none is given.
    """

    async def write(body: Json) -> Json:
        chosen = overrides.choose_pool(body, pool)
        limits = overrides.section_of(body, chosen).get("autoscale") or {}
        most = limits.get("max") if maximum is None else maximum
        if most is None:
            raise KubeClusterError(
                f"pool {chosen!r} of cluster {name!r} has no maximum",
                reason="its manifest sets a fixed size, and adapt() was given none",
                next_step=f"Write adapt(maximum=8, pool={chosen!r})",
            )
        least = limits.get("min", 0) if minimum is None else minimum
        return await put(server, body, {chosen: {"pool": chosen, "min": least, "max": most, "by": user()}})

    return (await rewrite(server, name, write))[1]


async def put(server: Server, body: Json, entries: Entries, notes: Notes | None = None) -> Json:
    """Make `entries` the overrides of their pools, None: none; the answer. Other pools' overrides stay.

    By apply, so that they stand beside others' fields, where that is possible.

    Args:
        server: where.
        body: the cluster as it was read.
        entries: by pool.
        notes: what the holds of these pools note beside them; without it they end.

    Raises:
        KubeClusterError: the API server refuses, also with 409 where `body` is not the last version.
    """
    notes = notes or {}
    if overrides.may_apply(body, entries):
        return await server.apply(overrides.changed(body, entries, notes))
    patch = overrides.replaced(body, entries, notes)
    return await server.merge(body["metadata"]["name"], patch, overrides.FIELD_MANAGER)


def refuse_shared(body: Json, pool: str) -> None:
    """Refuse to let go of an override that others hold too: half an entry is none that the API server accepts.

    Raises:
        KubeClusterError: others hold it; they are named.
    """
    owners = overrides.other_owners(body, pool)
    if owners:
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        raise KubeClusterError(
            f"the override of pool {pool!r} of cluster {name!r} is not ours alone",
            reason=f"{', '.join(owners)} set it as well",
            next_step=f"Remove it there: kubectl edit gdc {name} -n {namespace}, spec.overrides",
        )


def user() -> str:
    """Who runs this program, for people who ask who set a size."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return f"uid {os.getuid()}"
