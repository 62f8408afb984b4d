"""Reading a cluster, writing what follows from it, and again where another write came between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from gpudask.kubecluster.errors import KubeClusterError

if TYPE_CHECKING:
    from gpudask.kubecluster.server import Server  # the command line reads sizes before it needs an API server

Json = dict[str, Any]
_ATTEMPTS = 5


async def rewrite(server: Server, name: str, write: Callable[[Json], Awaitable[Json]]) -> tuple[Json, Json]:
    """The cluster `name` as it was, and as it is now.

    Args:
        server: where.
        name: the cluster's.
        write: is given the cluster as it is, writes what follows from it, and returns the answer. It names the
            resourceVersion that it was given, so that the API server refuses it with 409 where that is not the last.

    Raises:
        KubeClusterError: what `write` raises, or there was always another write between.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        before = await server.cluster(name)
        try:
            return before, await write(before)
        except KubeClusterError as error:
            if error.status != HTTPStatus.CONFLICT or attempt == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")
