"""`gpudask delete`: says what would be lost, asks, deletes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gpudask.api import Json
from gpudask.cli import client, output
from gpudask.cli.options import Context, Kubeconfig, NameOnly, Names, Namespace
from gpudask.cli.output import CliError

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server


def delete_command(
    *,
    names: Names,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. A script is not asked anyway.")] = False,
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
    """  # noqa: D301
    target = client.Target(kubeconfig, context, namespace)

    async def read(server: Server) -> list[Json]:
        return [await server.cluster(name) for name in names]

    bodies = client.run(target, read)
    for body in bodies:
        output.write_message(loss(body))
    if not yes and sys.stdin.isatty() and not typer.confirm(f"Delete {', '.join(names)}?", err=True):
        raise CliError("nothing was deleted")

    async def delete(server: Server) -> None:
        for name in names:
            await server.delete(name)
            typer.echo(output.cluster_reference(name) + ("" if output_form else " deleted"))

    client.run(target, delete)


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
