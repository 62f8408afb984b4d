"""The two forwarded ports that lead to a scheduler from outside: its own, and its dashboard's."""

from __future__ import annotations

import asyncio
from typing import Any

from gpudask.api.stock import COMM_PORT, DASHBOARD_PORT
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.forward import PortForward
from gpudask.kubecluster.routes import Route
from gpudask.kubecluster.server import Server

Json = dict[str, Any]
Forwards = dict[int, PortForward]


async def forwarded(server: Server, body: Json, forwards: Forwards, *, dashboard_port: int) -> Route:
    """The way through ports of this machine, which listen until `stop`.

    Args:
        server: through which they are forwarded.
        body: the cluster.
        forwards: takes what listens, also where this fails.
        dashboard_port: this machine's, for the dashboard; 0: any that is free.

    Raises:
        KubeClusterError: the protocol cannot be forwarded, the server refuses, or the port is taken.
    """
    name, protocol = body["metadata"]["name"], body["spec"].get("protocol", "tcp")
    if protocol == "ucxx":
        raise KubeClusterError(
            f"cluster {name!r} speaks ucxx",
            reason="that protocol cannot go through a forwarded port",
            next_step="Run the program inside the cluster, or set spec.protocol: tcp",
        )
    forwards[COMM_PORT] = PortForward(server, name, COMM_PORT)
    forwards[DASHBOARD_PORT] = PortForward(server, name, DASHBOARD_PORT, dashboard_port)
    # Both end before either's error is raised, so that `stop` finds all that listens.
    made = await asyncio.gather(*(forward.start() for forward in forwards.values()), return_exceptions=True)
    if failed := [each for each in made if isinstance(each, BaseException)]:
        raise failed[0]
    comm, dashboard = forwards[COMM_PORT].local_port, forwards[DASHBOARD_PORT].local_port
    return Route(f"{protocol}://127.0.0.1:{comm}", f"http://127.0.0.1:{dashboard}/status")


async def stop(forwards: Forwards) -> None:
    """Stop listening, and cut what is open."""
    for forward in forwards.values():
        await forward.stop()
    forwards.clear()
