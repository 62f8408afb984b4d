"""The log of one pod: as it is, or as it grows."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from gpudask.kubecluster.request import Connection

CONTAINER = "dask"


async def read_log(
    server: Connection, pod: str, *, tail: int | None = None, previous: bool = False, container: str = CONTAINER
) -> list[str]:
    """The lines of a pod's log.

    Args:
        server: whose namespace is asked.
        pod: its name.
        tail: only that many lines from the end.
        previous: of the container before its last restart; the server answers 400 where there was none.
        container: sidecars have logs of their own.
    """
    options = _log_options(tail=tail, container=container) | ({"previous": "true"} if previous else {})
    return [line async for line in server.lines("get", "pods", pod, subresource="log", params=options)]


async def follow_log(
    server: Connection, pod: str, *, tail: int | None = None, container: str = CONTAINER
) -> AsyncGenerator[str, None]:
    """The lines of a pod's log as they come, until its container ends."""
    options = _log_options(tail=tail, container=container) | {"follow": "true"}
    read = server.lines("get", "pods", pod, subresource="log", params=options, silence_seconds=None)
    async with aclosing(read) as lines:
        async for line in lines:
            yield line


def _log_options(*, tail: int | None, container: str) -> dict[str, str]:
    return {"container": container} | ({} if tail is None else {"tailLines": str(tail)})
