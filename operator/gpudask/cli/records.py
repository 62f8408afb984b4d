"""Records of clusters: each reduced as it comes, since one may have 200 kB, and there may be thousands."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from gpudask.api import Json
from gpudask.api.resource import API_VERSION, RECORD_PLURAL
from gpudask.cli.output import write_message
from gpudask.kubecluster.errors import KubeClusterError

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server

Reduced = TypeVar("Reduced")


async def read_records(
    server: Server,
    reduce: Callable[[Json], Reduced],
    *,
    cluster: str = "",
    all_namespaces: bool = False,
    needed: bool = False,
) -> list[Reduced]:
    """The records of a namespace, or of all.

    Where there is no such kind there are none. Where they may not be read that is said, and the rest goes on; unless
    they are `needed`.

    Args:
        server: where.
        reduce: what is kept of each.
        cluster: of the clusters of this name alone; of all where it is empty.
        all_namespaces: of every namespace.
        needed: raise whatever the reason is.

    Raises:
        KubeClusterError: the API server cannot be reached; where they are needed: or it refuses, or has no such kind.
    """
    found: list[Reduced] = []
    try:
        async with aclosing(server.each_record(cluster=cluster, all_namespaces=all_namespaces)) as records:
            async for body in records:
                found.append(reduce(body))  # noqa: PERF401 - what came before a refusal is kept
    except KubeClusterError as error:
        if needed:
            raise
        if error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.GONE):
            write_message(f"records of clusters are left out: {error}")
        elif error.status != HTTPStatus.NOT_FOUND:  # an older operator's definitions
            raise
    return found


async def find_record(server: Server, name: str) -> Json | None:
    """The record of this name of its own; None where there is none, or it may not be read."""
    try:
        return await server.call("get", RECORD_PLURAL, name, version=API_VERSION)
    except KubeClusterError as error:
        if error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
            return None
        raise
