"""The end of a cluster, as its loop hears of it."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from gpudask.api.resource import Identity
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes


class ClusterGoneError(Exception):
    """The cluster does not exist any more: its loop ends."""


async def look_again(api: Kubernetes, cluster: Identity, error: ApiError, *, after_seconds: float) -> NoReturn:
    """Look whether the cluster is gone, as the 404 `error` says: nobody would begin its loop again.

    An API server that starts, or a definition that is made anew, says so of what exists.

    Raises:
        ClusterGoneError: a second look finds no such cluster either, or another of its name.
        ApiError: it exists: `error`, as any other failure; or the second look failed.
    """
    await asyncio.sleep(after_seconds)
    try:
        body = await api.get_cluster(cluster.namespace, cluster.name)
    except ApiError as again:
        if again.object_not_found:
            raise ClusterGoneError from again
        raise
    if body["metadata"]["uid"] != cluster.uid:
        raise ClusterGoneError from error
    raise error
