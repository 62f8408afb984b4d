"""`gpudask delete`: says what would be lost, asks, deletes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gpudask.api import Json
from gpudask.cli import client, output
from gpudask.cli.commands.wait import wait_until_gone
from gpudask.cli.options import (
    Context,
    IgnoreNotFound,
    Kubeconfig,
    NameOnly,
    Names,
    Namespace,
    Selector,
    names_or_selector,
    read_length,
)
from gpudask.cli.output import CliError

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server


def delete_command(
    *,
    names: Names = None,
    selector: Selector = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. A script is not asked anyway.")] = False,
    ignore_not_found: IgnoreNotFound = False,
    wait: Annotated[bool, typer.Option("--wait", help="Until they are gone with all their pods.")] = False,
    timeout: Annotated[str, typer.Option(help="With --wait: how long at most, such as 30s or 5m.")] = "5m",
    output_form: Annotated[NameOnly | None, typer.Option("--output", "-o", help="The names alone.")] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Delete clusters with all their pods.

    It says what would be lost, and asks where it runs in a terminal.

    \b
    Example:
      gpudask delete demo
      gpudask delete demo other --yes
      gpudask delete -l team=vision --wait
    """  # noqa: D301
    named = names_or_selector(names, selector)
    timeout_seconds = read_length(timeout, "--timeout")

    async def read(server: Server) -> list[Json]:
        return await client.chosen(server, named, selector, ignore_not_found=ignore_not_found)

    async def delete(server: Server) -> None:
        for body in bodies:
            await _delete(server, body)
            typer.echo(output.cluster_reference(body["metadata"]["name"]) + ("" if output_form else " deleted"))

    with client.connected(client.Target(kubeconfig, context, namespace)) as connection:
        bodies = connection.run(read)
        for body in bodies:
            output.write_message(loss(body))
        listed = ", ".join(body["metadata"]["name"] for body in bodies)
        if bodies and not yes and sys.stdin.isatty() and not typer.confirm(f"Delete {listed}?", err=True):
            raise CliError("nothing was deleted")
        connection.run(delete)
        if wait:
            connection.run(lambda server: wait_until_gone(server, bodies, timeout_seconds))
        if not bodies:
            output.write_message("nothing was deleted: there is no such cluster")


async def _delete(server: Server, body: Json) -> None:
    """Delete the very cluster whose loss was told, and no other of its name."""
    from gpudask.kubecluster.errors import KubeClusterError  # noqa: PLC0415 - the client loads when a command needs it
    from gpudask.kubecluster.kube.request import CONFLICT  # noqa: PLC0415

    name = body["metadata"]["name"]
    try:
        await server.delete(name, uid=body["metadata"]["uid"])
    except KubeClusterError as error:
        if error.status != CONFLICT:
            raise
        raise CliError(
            f"cluster {name!r} was not deleted: another of this name was made meanwhile."
            f" See it: gpudask get {name} -n {server.namespace}"
        ) from error


def loss(body: Json) -> str:
    """The loss with a cluster, from its status."""
    status = body.get("status") or {}
    pools = status.get("pools") or []
    pods = sum(pool.get("pods", 0) for pool in pools)
    running = sum((pool.get("demand") or {}).get("running", 0) for pool in pools)
    waiting = sum((pool.get("demand") or {}).get("waiting", 0) for pool in pools)
    known = (status.get("scheduler") or {}).get("tasks", 0)
    name = body["metadata"]["name"]
    if not (pods or running or waiting or known):
        return f"{name}: no worker pods and no tasks are known"
    tasks = f"{running} tasks run or are assigned, {waiting} wait"
    return f"{name}: {pods} worker pods; {tasks}; its scheduler holds {known} tasks and results, which are lost"
