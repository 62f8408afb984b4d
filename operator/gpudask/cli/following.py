"""Clusters as they change, for `gpudask get --watch`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from gpudask.api.resource import PLURAL
from gpudask.kubecluster.errors import KubeClusterError

if TYPE_CHECKING:
    from gpudask.kubecluster.server import Server

Json = dict[str, Any]
_GONE = 410
_RETRY_SECONDS = 1.0


async def follow(server: Server, names: list[str], *, all_namespaces: bool = False) -> AsyncIterator[tuple[Json, bool]]:
    """Clusters as they are now, then each that changes, and whether it is still there. Never ends.

    A watch that ends or breaks is begun again with a list, in which what vanished meanwhile is found.

    Args:
        server: where; its namespace is meant unless `all_namespaces`.
        names: only these; all where it is empty.
        all_namespaces: of every namespace.

    Raises:
        KubeClusterError: the server refuses, or cannot be reached.
    """
    namespace = "" if all_namespaces else None
    known: dict[str, Json] = {}
    while True:
        answer = await server.call("list", PLURAL, namespace=namespace)
        found = {_uid(body): body for body in answer["items"] if not names or body["metadata"]["name"] in names}
        for uid in known.keys() - found.keys():
            yield known[uid], False
        for uid, body in found.items():
            if uid not in known or _version(known[uid]) != _version(body):
                yield body, True
        known = found
        try:
            async with aclosing(server.changes(_version(answer), namespace=namespace)) as changes:
                async for kind, body in changes:
                    if names and body["metadata"]["name"] not in names:
                        continue
                    if kind == "DELETED":
                        known.pop(_uid(body), None)
                    else:
                        known[_uid(body)] = body
                    yield body, kind != "DELETED"
        except KubeClusterError as error:
            if error.status not in (0, _GONE):
                raise
            await asyncio.sleep(_RETRY_SECONDS)


def _uid(body: Json) -> str:
    return str(body["metadata"]["uid"])


def _version(body: Json) -> str:
    return str(body["metadata"]["resourceVersion"])
