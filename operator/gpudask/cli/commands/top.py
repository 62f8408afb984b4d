"""`gpudask top`: pools, GPUs and demand, live."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpudask.api import Json
from gpudask.cli import client, cluster_tables, output
from gpudask.cli.options import AllNamespaces, Context, Document, Kubeconfig, Namespace, Selector, Wanted
from gpudask.cli.output import CliError, Exit
from gpudask.kubecluster.errors import KubeClusterError

if TYPE_CHECKING:
    from rich.console import Group

    from gpudask.kubecluster.kube.server import Server


def top_command(
    *,
    name: Wanted = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once; what is no terminal gets that anyway.")] = False,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between looks.")] = 2.0,
    all_namespaces: AllNamespaces = False,
    selector: Selector = None,
    output_form: Annotated[
        Document | None, typer.Option("--output", "-o", help="For programs: what is shown, once, in bare numbers.")
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show pools, GPUs and demand live.

    Pods are ready of desired, GPUs busy of held; tasks wait or run. Of pools with GPUs it shows which share of their
    time has worked so far, and what each GPU that is held does now. ctrl-C ends it.

    \b
    Example:
      gpudask top demo
      gpudask top -A
      gpudask top demo --once
      gpudask top -A -o json
    """  # noqa: D301
    if name is not None and all_namespaces:
        raise CliError("a name is of one namespace: leave out -A, or the name", Exit.USAGE)
    if name is not None and selector is not None:
        raise CliError("name the cluster, or find clusters with -l, not both", Exit.USAGE)

    async def look(server: Server) -> list[Json]:
        return await client.chosen(server, [name] if name else [], selector, all_namespaces=all_namespaces)

    async def show(server: Server) -> None:
        if output_form is not None:
            shot = cluster_tables.snapshot(await look(server), datetime.now(UTC), metadata.version("gpudask"))
            typer.echo(output.as_text(shot, output_form), nl=False)
            return
        if once or not sys.stdout.isatty():
            console = output.console()
            now = datetime.now(UTC)
            cluster_tables.show(console, picture(await look(server), now, console.width, namespaces=all_namespaces))
            return
        await _live(lambda: look(server), interval, namespaces=all_namespaces)

    client.run(client.Target(kubeconfig, context, namespace), show)


async def _live(look: Any, interval: float, *, namespaces: bool) -> None:
    from rich.live import Live  # noqa: PLC0415 - what is printed once does without
    from rich.text import Text  # noqa: PLC0415

    console = output.console()

    async def view() -> Group:
        return picture(await look(), datetime.now(UTC), console.width, namespaces=namespaces)

    with Live(await view(), console=console, auto_refresh=False, screen=True) as live:
        while True:
            await asyncio.sleep(interval)
            try:
                shown: Any = await view()
            except KubeClusterError as error:
                if not error.may_pass:  # deleted, or no longer allowed
                    raise
                shown = Text(f"{error}\ntrying again ...")
            live.update(shown, refresh=True)


def picture(bodies: list[Json], now: datetime, width: int, *, namespaces: bool = False) -> Group:
    """Clusters and pools as one thing that rich draws in a terminal of `width` characters."""
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    held, busy = cluster_tables.gpus(bodies)
    head = f"{now:%H:%M:%S} UTC   clusters {len(bodies)}   GPUs held {held}, busy {busy}"
    lines = [f"{body['metadata']['name']}: {line}" for body in bodies for line in cluster_tables.troubles(body)]
    columns, rows = cluster_tables.pool_rows(bodies, clusters=True, namespaces=namespaces)
    causes = cluster_tables.cause_rows(bodies, namespaces=namespaces)
    return Group(
        Text(head),
        Text(),
        *cluster_tables.table(columns, rows, width).renderables,
        *([Text(), *cluster_tables.table(*causes, width).renderables] if causes[1] else []),
        *(Text(line) for line in (["", *lines] if lines else [])),
    )
