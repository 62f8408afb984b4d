"""Records of clusters, read from the API server page by page: a record may have 200 kB, and there may be thousands."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from gpudask.api import Json
from gpudask.api.resource import API_VERSION, LABEL_CLUSTER
from gpudask.cli import untrusted
from gpudask.cli.output import write_message
from gpudask.kubecluster.errors import KubeClusterError

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server

PLURAL = "gpudaskrecords"
_PAGE = 50
_MOST_PAGES = 1000
Reduced = TypeVar("Reduced")


async def read_records(
    server: Server, reduce: Callable[[Json], Reduced], *, cluster: str = "", all_namespaces: bool = False
) -> list[Reduced]:
    """The records of a namespace, or of all, each reduced as it comes.

    Where there is no such kind there are none. Where they may not be read that is said, and the rest goes on.

    Args:
        server: where.
        reduce: what is kept of each.
        cluster: of the clusters of this name alone; of all where it is empty.
        all_namespaces: of every namespace.

    Raises:
        KubeClusterError: the API server cannot be reached.
    """
    found: list[Reduced] = []
    where = "" if all_namespaces else None
    position = ""
    for _ in range(_MOST_PAGES):
        params = {"limit": str(_PAGE)} | ({"continue": position} if position else {})
        params |= {"labelSelector": f"{LABEL_CLUSTER}={cluster}"} if cluster else {}
        try:
            answer = await server.call("list", PLURAL, version=API_VERSION, namespace=where, params=params)
        except KubeClusterError as error:
            if error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.GONE):
                write_message(f"records of clusters are left out: {error}")
                return found
            if error.status == HTTPStatus.NOT_FOUND:  # an older operator's definitions
                return found
            raise
        found += [reduce(body) for body in untrusted.objects(answer, "items")]
        position = untrusted.field(answer, "metadata", "continue") or ""
        if not position:
            return found
    write_message(f"there are more than {len(found)} records: the rest is left out")
    return found


async def find_record(server: Server, name: str) -> Json | None:
    """The record of this name of its own; None where there is none, or it may not be read."""
    try:
        return await server.call("get", PLURAL, name, version=API_VERSION)
    except KubeClusterError as error:
        if error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
            return None
        raise
