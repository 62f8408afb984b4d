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
_WRITE_ATTEMPTS = 5


async def set_size(server: Server, name: str, n: int | None, pool: str | None) -> None:
    """Set `pool` of cluster `name` to `n` pods, or give its size back where `n` is None. Read, write, and again.

    Raises:
        KubeClusterError: no such pool, several and none named, others set it too, or the API server refuses.
    """
    for attempt in range(1, _WRITE_ATTEMPTS + 1):
        body = await server.cluster(name)
        chosen = overrides.choose_pool(body, pool)
        if n is None:
            _refuse_shared(body, chosen)
        entries = overrides.own_entries(body)
        entries.pop(chosen, None)
        if n is not None:
            entries[chosen] = {"pool": chosen, "replicas": n, "by": _user()}
        try:
            await server.apply(overrides.apply_body(body, entries))
        except KubeClusterError as error:
            if error.status != CONFLICT or attempt == _WRITE_ATTEMPTS:
                raise
            continue  # another write came between: read again
        return


def _refuse_shared(body: Json, pool: str) -> None:
    # Letting go of our half would leave an entry without `replicas`, which the API server refuses.
    owners = overrides.other_owners(body, pool)
    if owners:
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        raise KubeClusterError(
            f"the override of pool {pool!r} of cluster {name!r} is not ours alone",
            reason=f"{', '.join(owners)} set it as well",
            next_step=f"Remove it there: kubectl edit gdc {name} -n {namespace}, spec.overrides",
        )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return f"uid {os.getuid()}"
