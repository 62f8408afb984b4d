"""The logs of a cluster's pods, as the stock client gives them: by pod name, those that ended included."""

from __future__ import annotations

import asyncio
from typing import Any

from distributed.utils import Log, Logs

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.pods import list_pods, read_log
from gpudask.kubecluster.reasons import why_pod_waits
from gpudask.kubecluster.server import Server

Json = dict[str, Any]
_AT_ONCE = 10


async def pod_logs(server: Server, name: str, *, component: str, pool: str, tail: int | None) -> Logs:
    """The logs of cluster `name`'s pods; of a pod without any, what it waits for.

    Args:
        server: where.
        name: the cluster's.
        component: `scheduler`, `worker`, or empty for both.
        pool: only that pool's; empty for all.
        tail: only that many lines of each from the end.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(pod: Json) -> str:
        async with gate:
            try:
                return "\n".join(await read_log(server, pod["metadata"]["name"], tail=tail))
            except KubeClusterError as error:
                if error.status != 400:  # noqa: PLR2004 - the server's word for a container that never ran
                    raise
                return f"no log yet: {why_pod_waits(pod) or error.reason}"

    pods = await list_pods(server, name, component=component, pool=pool)
    texts = await asyncio.gather(*(one(pod) for pod in pods))
    return Logs({pod["metadata"]["name"]: Log(text) for pod, text in zip(pods, texts, strict=True)})
