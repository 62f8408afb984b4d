"""Writing the size of a pool: an override of our own, beside those of others."""

from __future__ import annotations

import getpass
import os
from typing import Any

from gpudask.kubecluster import overrides
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.request import CONFLICT
from gpudask.kubecluster.server import Server

Json = dict[str, Any]
WRITE_ATTEMPTS = 5


async def set_size(server: Server, name: str, n: int | None, pool: str | None) -> Json:
    """Set `pool` of cluster `name` to `n` pods, or give its size back where `n` is None. The cluster as it was.

    Raises:
        KubeClusterError: no such pool, several and none named, others set it too, or the API server refuses.
    """
    return await set_override(server, name, pool, None if n is None else {"replicas": n, "by": user()})


async def set_limits(server: Server, name: str, minimum: int | None, maximum: int | None, pool: str | None) -> Json:
    """Let `pool` follow demand between limits; one that is None is the manifest's. The cluster as it was.

    Raises:
        KubeClusterError: as `set_size`, or the pool's manifest has no maximum and none is given.
    """
    body = await server.cluster(name)
    chosen = overrides.choose_pool(body, pool)
    limits = next(item for item in body["spec"]["pools"] if item["name"] == chosen).get("autoscale") or {}
    most = limits.get("max") if maximum is None else maximum
    if most is None:
        raise KubeClusterError(
            f"pool {chosen!r} of cluster {name!r} has no maximum",
            reason="its manifest sets a fixed size, and adapt() was given none",
            next_step=f"Write adapt(maximum=8, pool={chosen!r})",
        )
    least = limits.get("min", 0) if minimum is None else minimum
    return await set_override(server, name, chosen, {"min": least, "max": most, "by": user()})


async def set_override(server: Server, name: str, pool: str | None, entry: Json | None) -> Json:
    """Write our override of `pool`, or remove it where `entry` is None: read, write, and again after a conflict.

    Returns:
        The cluster as it was before, in which `overrides.own_entries` finds what `entry` replaced.

    Raises:
        KubeClusterError: no such pool, several and none named, others set it too, or the API server refuses.
    """
    for attempt in range(1, WRITE_ATTEMPTS + 1):
        body = await server.cluster(name)
        chosen = overrides.choose_pool(body, pool)
        if entry is None:
            refuse_shared(body, chosen)
        whole = None if entry is None else {"pool": chosen, **entry}
        try:
            await _write(server, body, chosen, whole)
        except KubeClusterError as error:
            if error.status != CONFLICT or attempt == WRITE_ATTEMPTS:
                raise
            continue  # another write came between: read again
        return body
    raise AssertionError("the loop returns or raises")


async def _write(server: Server, body: Json, pool: str, entry: Json | None) -> None:
    """By apply, so that it stands beside others' fields; but what the mirror set is replaced, not mixed with ours."""
    if not overrides.is_applied(body, pool):
        patch = overrides.replaced(body, {pool: entry})
        await server.merge(body["metadata"]["name"], patch, overrides.FIELD_MANAGER)
        return
    entries = overrides.own_entries(body)
    entries.pop(pool, None)
    if entry is not None:
        entries[pool] = entry
    await server.apply(overrides.apply_body(body, entries))


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
