"""`gpudask connect` and `gpudask dashboard`: a local port that leads to the scheduler, until ctrl-C."""

from __future__ import annotations

import asyncio
import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

from gpudask.api import Json
from gpudask.api.addresses import COMM_PORT, DASHBOARD_PORT, UCXX
from gpudask.cli import client, output
from gpudask.cli.options import Context, Kubeconfig, Name, Namespace
from gpudask.cli.output import CliError, ended
from gpudask.kubecluster.errors import why_not_ready

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpudask.kubecluster.kube.server import Server

_LIMIT_SECONDS = 30.0  # a plain Client does not try again: a scheduler may be busy for so long
_SECURE = {"tls", "wss"}


def dashboard_command(
    *,
    name: Name,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Forward a port to the dashboard.

    It prints the URL, and runs until ctrl-C, which is no error.

    \b
    Example:
      gpudask dashboard demo --open
    """  # noqa: D301

    def tell(_: Json, port: int) -> None:
        url = f"http://127.0.0.1:{port}/status"
        typer.echo(url)
        if open_browser and not webbrowser.open(url):
            output.write_message("no browser could be opened: go to the address above")

    _run(client.Target(kubeconfig, context, namespace), name, DASHBOARD_PORT, tell)


def connect_command(
    *,
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Forward a port to the scheduler.

    It prints the line of Python that uses it, and runs until ctrl-C, which is no error.
    Python that has kubectl's rights needs no such port: gpudask.KubeCluster.from_name("demo").

    \b
    Example:
      gpudask connect demo
    """  # noqa: D301

    def tell(body: Json, port: int) -> None:
        typer.echo(client_line(body, port))
        output.write_message("it leads to the scheduler until ctrl-C")

    _run(client.Target(kubeconfig, context, namespace), name, COMM_PORT, tell)


def client_line(body: Json, port: int) -> str:
    """The line of Python that connects through a local port.

    Raises:
        CliError: the cluster's protocol cannot go through a forwarded port.
    """
    protocol = body["spec"].get("protocol", "tcp")
    if protocol == UCXX:
        raise CliError(
            f"cluster {body['metadata']['name']!r} speaks ucxx, which no forwarded port carries:"
            " run the program inside Kubernetes, or set spec.protocol: tcp"
        )
    address = f'"{protocol}://127.0.0.1:{port}"'
    call = f"Client({address}, security=security)  # your cluster's certificates" if protocol in _SECURE else ""
    return f"from dask.distributed import Client; client = {call or f'Client({address})'}"


def _run(target: client.Target, name: str, port: int, tell: Callable[[Json, int], None]) -> None:
    told = False

    def tell_it(body: Json, local: int) -> None:
        nonlocal told
        tell(body, local)
        told = True

    try:
        client.run(target, lambda server: _forward(server, name, port, tell_it))
    except KeyboardInterrupt:  # the end that there is, once the port is open; kubectl port-forward has it so
        if not told:
            raise


async def _forward(server: Server, name: str, port: int, tell: Callable[[Json, int], None]) -> None:
    from gpudask.kubecluster.forward.port_forward import PortForward  # noqa: PLC0415 - httpx comes with it
    from gpudask.kubecluster.kube.pods import ClusterPods  # noqa: PLC0415 - httpx comes with it

    body = await server.cluster(name)
    uid = body["metadata"]["uid"]
    if not any(pod.is_ready for pod in await ClusterPods(server, name, uid).schedulers()):
        why = why_not_ready(body)
        step = f"gpudask resume {name}" if body["spec"].get("suspend") else f"gpudask wait {name}"
        raise CliError(f"{ended(f'cluster {name!r} has no scheduler that is ready: {why}')} Next: {step}")
    if port == COMM_PORT:
        client_line(body, 0)  # before anything is opened: this protocol may not go through

    forward = PortForward(
        server,
        name,
        port,
        uid=uid,
        limit_seconds=_LIMIT_SECONDS,
        expects_handshake=port == COMM_PORT,
        serves_http=port == DASHBOARD_PORT,
    )
    await forward.start()
    try:
        tell(body, forward.local_port)
        await asyncio.Event().wait()
    finally:
        await forward.stop()
