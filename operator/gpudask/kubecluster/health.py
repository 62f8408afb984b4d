"""Whether a scheduler is up yet: asked what the kubelet's probe asks, through a port forwarded to its pod.

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


async def is_up_soon(server: Server, pod: str, *, pause_seconds: float) -> bool:
    """Whether the scheduler in `pod` answers within about a second, asked again and again with pauses.

    Returns at once, with False, where no port may be forwarded.
    """
    clock = server.timing.clock
    deadline = clock.monotonic() + server.timing.health_seconds
    try:
        while not await _is_up(server, pod):
            if clock.monotonic() + pause_seconds > deadline:
                return False
            await clock.sleep(pause_seconds)
    except KubeClusterError:
        return False
    return True


async def _is_up(server: Server, pod: str) -> bool:
    try:
        async with asyncio.timeout(server.timing.health_seconds), open_port(server, pod, DASHBOARD_PORT) as opened:
            return await _is_answered(opened)
    except OSError:  # a TimeoutError is one
        return False


async def _is_answered(opened: PodPort) -> bool:
    try:
        await opened.send(_QUESTION)
    except ConnectionError:
        return False
    return (await opened.receive()).startswith(b"HTTP/")  # nothing, where nothing listens yet
