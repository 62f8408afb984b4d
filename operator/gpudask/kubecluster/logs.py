"""The logs of a cluster's pods, as the stock client gives them: by pod name, those that ended included."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from distributed.utils import Log, Logs

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.pod_log import read_log
from gpudask.kubecluster.pods import list_pods
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

    Raises:
        KubeClusterError: the server refuses, or no log at all can be read. One of several that cannot be read says so.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(pod: Json) -> str | KubeClusterError:
        async with gate:
            try:
                return "\n".join(await read_log(server, pod["metadata"]["name"], tail=tail))
            except KubeClusterError as error:
                if error.status == HTTPStatus.BAD_REQUEST:  # the server's word for a container that never ran
                    return f"no log yet: {why_pod_waits(pod) or error.reason}"
                if error.status == HTTPStatus.NOT_FOUND:
                    return "no log: the pod has gone meanwhile"
                if not error.may_pass:
                    raise
                return error

    pods = await list_pods(server, name, component=component, pool=pool)
    texts = await asyncio.gather(*(one(pod) for pod in pods))
    unread = [text for text in texts if isinstance(text, KubeClusterError)]
    if unread and len(unread) == len(pods):
        raise unread[0]
    return Logs({pod["metadata"]["name"]: Log(_told(text)) for pod, text in zip(pods, texts, strict=True)})


def _told(text: str | KubeClusterError) -> str:
    return text if isinstance(text, str) else f"not read: {text.reason}"
