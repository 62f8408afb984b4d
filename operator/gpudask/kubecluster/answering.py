"""Whether a scheduler answers yet: asked what the kubelet's probe asks, through a port forwarded to its pod.

A pod is ready only when the kubelet has looked again and has said so, up to some seconds after the scheduler listens.
Workers do not wait for that, and neither does a program.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx_ws

from gpudask.kubecluster.forward import DATA, ERROR, OPEN_ERRORS
from gpudask.kubecluster.routes import DASHBOARD_PORT
from gpudask.kubecluster.server import Server

_QUESTION = b"GET /health HTTP/1.0\r\n\r\n"
_LIMIT_SECONDS = 1.0


async def answers(server: Server, pod: str) -> bool:
    """Whether the scheduler in `pod` answers within a second. Also False where no port may be forwarded."""
    try:
        async with asyncio.timeout(_LIMIT_SECONDS), server.open_port(pod, DASHBOARD_PORT) as socket:
            return await _is_answered(socket)
    except OPEN_ERRORS:  # a TimeoutError is an OSError
        return False


async def _is_answered(socket: Any) -> bool:
    opened = set()
    try:
        await socket.send_bytes(DATA + _QUESTION)
        while True:
            message = await socket.receive_bytes()
            channel = message[0]
            if channel not in opened:  # the first frame of a channel only names its port
                opened.add(channel)
            elif channel == ERROR:  # nothing listens yet
                return False
            else:
                return bool(message[1:].startswith(b"HTTP/"))
    except httpx_ws.HTTPXWSException:
        return False
