"""Clusters, or jobs, as they change: the one watch of the command line, under `get --watch`, `wait` and `attach`.

A request that fails and may not fail the next time does not end it: that is told, and it asks again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from http import HTTPStatus
from typing import TYPE_CHECKING

from gpudask.api import Json
from gpudask.api.resource import PLURAL
from gpudask.cli.output import write_message
from gpudask.kubecluster.errors import KubeClusterError

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server

_LEAST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 10.0
# The server ends a watch after 4 minutes; one that is silent for longer leads nowhere.
_SILENCE_SECONDS = 270.0


async def follow(
    server: Server, names: list[str], *, all_namespaces: bool = False, selector: str = "", resource: str = PLURAL
) -> AsyncGenerator[tuple[Json, bool]]:
    """Clusters as they are now, then each that changes, and whether it is still there. Never ends.

    A watch that ends or breaks is begun again by looking anew, in which what vanished meanwhile is found. Who may not
    watch looks every second; for one name the right to get is enough.

    Args:
        server: where; its namespace is meant unless `all_namespaces`.
        names: only these; all where it is empty.
        all_namespaces: of every namespace.
        selector: only those with these labels; one that loses them is no longer there.
        resource: the plural of what is followed.

    Raises:
        KubeClusterError: the server refuses, and will again.
    """
    namespace = "" if all_namespaces else None
    known: dict[str, Json] = {}
    trouble = Trouble()
    while True:
        try:
            found, version = await _look(server, names, namespace, selector, resource)
        except KubeClusterError as error:
            await trouble.wait_after(error)
            continue
        trouble.is_over()
        for uid in known.keys() - found.keys():
            yield known[uid], False
        for uid, body in found.items():
            if uid not in known or _version(known[uid]) != _version(body):
                yield body, True
        known = found
        began = time.monotonic()
        try:
            async with aclosing(
                _changes(server, names, version, namespace, selector=selector, resource=resource)
            ) as changes:
                async for kind, body in changes:
                    if kind == "DELETED":
                        known.pop(_uid(body), None)
                    else:
                        known[_uid(body)] = body
                    yield body, kind != "DELETED"
        except KubeClusterError as error:
            if error.status not in (HTTPStatus.FORBIDDEN, HTTPStatus.GONE) and not error.may_pass:
                raise  # else: whether it is worth a word shows when it looks again
        # Whatever ended it: a server or proxy that ends every watch at once is not to be asked without a pause.
        await asyncio.sleep(max(0.0, began + _LEAST_PAUSE_SECONDS - time.monotonic()))


class Trouble:
    """Requests that failed in a row: each reason is printed once, and the pauses grow."""

    def __init__(self) -> None:
        self._reported = ""
        self._pause = _LEAST_PAUSE_SECONDS

    async def wait_after(self, error: KubeClusterError) -> None:
        """Print what failed and wait; raise it where it would fail again."""
        if not error.may_pass:
            raise error
        if error.reason != self._reported:
            self._reported = error.reason
            write_message(f"the API server does not answer, trying again: {error.reason}")
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)

    def is_over(self) -> None:
        """Report that the API server answers again."""
        if self._reported:
            write_message("the API server answers again")
        self._reported, self._pause = "", _LEAST_PAUSE_SECONDS


async def _look(
    server: Server, names: list[str], namespace: str | None, selector: str, resource: str
) -> tuple[dict[str, Json], str]:
    """The clusters by their uids, and the version to watch from."""
    if len(names) == 1 and namespace is None:
        found = await server.find(names[0], resource)
        return ({_uid(found): found}, _version(found)) if found else ({}, "")
    params = {"labelSelector": selector} if selector else {}
    answer = await server.call("list", resource, namespace=namespace, params=params)
    items = [body for body in answer["items"] if not names or body["metadata"]["name"] in names]
    return {_uid(body): body for body in items}, _version(answer)


async def _changes(
    server: Server, names: list[str], version: str, namespace: str | None, *, selector: str, resource: str
) -> AsyncGenerator[tuple[str, Json], None]:
    if not version:  # the only one is not there; it may be made
        await asyncio.sleep(_LEAST_PAUSE_SECONDS)
        return
    one = names[0] if len(names) == 1 else ""
    watched = server.changes(version, name=one, namespace=namespace, selector=selector, resource=resource)
    async with aclosing(watched) as changes:
        while True:
            try:
                async with asyncio.timeout(_SILENCE_SECONDS):
                    kind, body = await anext(changes)
            except StopAsyncIteration:
                return
            except (TimeoutError, json.JSONDecodeError) as error:  # silent for too long, or cut off within a line
                raise KubeClusterError(
                    "the watch broke", reason=str(error) or "no answer", next_step="", unanswered=True
                ) from error
            if not names or body["metadata"]["name"] in names:
                yield kind, body


def _uid(body: Json) -> str:
    return str(body["metadata"]["uid"])


def _version(body: Json) -> str:
    return str(body["metadata"]["resourceVersion"])
