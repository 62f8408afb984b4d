"""Whether a scheduler answers yet: asked what the kubelet's probe asks, through a port forwarded to its pod.

A pod is ready only when the kubelet has looked again and has said so, up to some seconds after the scheduler listens.
Workers do not wait for that, and neither does a program.
"""

from __future__ import annotations

import asyncio

from gpudask.api.stock import DASHBOARD_PORT
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.pod_port import PodPort, open_port
from gpudask.kubecluster.server import Server

_QUESTION = b"GET /health HTTP/1.0\r\n\r\n"
_LIMIT_SECONDS = 1.0


async def answers(server: Server, pod: str) -> bool:
    """Whether the scheduler in `pod` answers within a second. Also False where no port may be forwarded."""
    try:
        async with asyncio.timeout(_LIMIT_SECONDS), open_port(server, pod, DASHBOARD_PORT) as opened:
            return await _is_answered(opened)
    except (KubeClusterError, OSError):  # a TimeoutError is an OSError
        return False


async def _is_answered(opened: PodPort) -> bool:
    try:
        await opened.send(_QUESTION)
    except ConnectionError:
        return False
    return (await opened.receive()).startswith(b"HTTP/")  # nothing, where nothing listens yet
