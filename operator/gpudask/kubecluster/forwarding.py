"""The way to a scheduler from outside: an address that answers, or two forwarded ports, its and its dashboard's."""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dask.config
from dask.utils import parse_timedelta

from gpudask.api.addresses import UCXX
from gpudask.api.stock import COMM_PORT, DASHBOARD_PORT
from gpudask.kubecluster import routes
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.forward import PortForward
from gpudask.kubecluster.routes import Route
from gpudask.kubecluster.server import Server
from gpudask.kubecluster.timing import Timing

Json = dict[str, Any]
Forwards = dict[int, PortForward]
_LEAST_SECONDS, _TRIES = 5.0, 3


async def from_outside(
    server: Server,
    body: Json,
    forwards: Forwards,
    *,
    dashboard_port: int,
    connection_args: Json,
    tell: Callable[[str], object],
) -> Route:
    """The way by the outside address that answers, else through ports of this machine, which listen until `stop`.

    Args:
        server: where the cluster is.
        body: the cluster.
        forwards: takes what listens, also where this fails. The dashboard's that is there already serves on.
        dashboard_port: this machine's, for a dashboard that has to be forwarded; 0: any that is free.
        connection_args: of Dask's connections, such as the TLS context.
        tell: called with why an address that there should be is not taken, and why there is no dashboard.

    Raises:
        KubeClusterError: as `forwarded`.
    """
    outside = await routes.outside(body, server, connection_args=connection_args, tell=tell)
    if outside is None:
        return await forwarded(server, body, forwards, dashboard_port=dashboard_port)
    if outside.dashboard:
        return outside
    try:
        await _forward_dashboard(server, body, forwards, dashboard_port)
    except KubeClusterError as error:
        tell(f"no dashboard: {error}")
        return outside
    return replace(outside, dashboard=_status_page(forwards))


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
    if protocol == UCXX:
        raise KubeClusterError(
            f"cluster {name!r} speaks ucxx",
            reason="that protocol cannot go through a forwarded port",
            next_step="Run the program inside the cluster, or set spec.protocol: tcp",
        )
    forwards[COMM_PORT] = PortForward(
        server, name, COMM_PORT, limit_seconds=_limit_seconds(server.timing), is_greeted=True
    )
    # Both end before either's error is raised, so that `stop` finds all that listens.
    both = forwards[COMM_PORT].start(), _forward_dashboard(server, body, forwards, dashboard_port, check=False)
    made = await asyncio.gather(*both, return_exceptions=True)
    if failed := [each for each in made if isinstance(each, BaseException)]:
        raise failed[0]
    return Route(f"{protocol}://127.0.0.1:{forwards[COMM_PORT].local_port}", _status_page(forwards))


async def _forward_dashboard(
    server: Server, body: Json, forwards: Forwards, local_port: int, *, check: bool = True
) -> None:
    if DASHBOARD_PORT not in forwards:
        forwards[DASHBOARD_PORT] = PortForward(server, body["metadata"]["name"], DASHBOARD_PORT, local_port)
        await forwards[DASHBOARD_PORT].start(check=check)


async def stop(forwards: Forwards) -> None:
    """Stop listening, and cut what is open."""
    for forward in forwards.values():
        await forward.stop()
    forwards.clear()


def give_up_seconds() -> float:
    """How long Dask's clients look for a scheduler that is away before they close for good."""
    return float(parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"), default="s"))


def _limit_seconds(timing: Timing) -> float:
    """So long that a client tries several times before it gives up, and that a busy scheduler can answer."""
    given = timing.forward_scheduler_seconds
    return max(_LEAST_SECONDS, give_up_seconds() / _TRIES) if given is None else given


def _status_page(forwards: Forwards) -> str:
    return f"http://127.0.0.1:{forwards[DASHBOARD_PORT].local_port}/status"
