"""`gpudask get`: clusters at a glance, or one with its pools."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from gpudask.api import Json
from gpudask.cli import client, cluster_tables, output
from gpudask.cli.completion import clusters
from gpudask.cli.options import AllNamespaces, Context, Kubeconfig, Listing, Namespace
from gpudask.cli.output import CliError, Exit
from gpudask.cli.watch import follow

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server

Wanted = Annotated[
    list[str] | None, typer.Argument(metavar="NAME...", help="Clusters; all without it.", autocompletion=clusters)
]
Form = Annotated[Listing | None, typer.Option("--output", "-o", help="wide for people, the rest for programs.")]


def get_command(
    *,
    names: Wanted = None,
    all_namespaces: AllNamespaces = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on with a line for each change, until ctrl-C.")
    ] = False,
    output_form: Form = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """List clusters, or show one with its pools.

    \b
    Example:
      gpudask get
      gpudask get demo
      gpudask get -A -o wide
      gpudask get demo --watch
      gpudask get demo -o json
    """  # noqa: D301
    if names and all_namespaces:
        raise CliError("a name is of one namespace: leave out -A, or the name", Exit.USAGE)

    target = client.Target(kubeconfig, context, namespace)
    if watch:
        client.run(target, lambda server: _watch(server, names or [], output_form, all_namespaces=all_namespaces))

    async def read(server: Server) -> tuple[list[Json], str]:
        place = "any namespace" if all_namespaces else f"namespace {server.namespace}"
        if names:
            return [await server.cluster(name) for name in names], place
        return await server.clusters(all_namespaces=all_namespaces), place

    bodies, place = client.run(target, read)
    if output_form is not None and output_form != Listing.WIDE:
        listed = names is not None and len(names) == 1
        typer.echo(output.documents(bodies, output_form) if listed else output.listed(bodies, output_form), nl=False)
        return
    if not bodies:
        output.write_message(f"no clusters found in {place}; gpudask create makes one")
        return
    now = datetime.now(UTC)
    console = output.console()
    wide = output_form == Listing.WIDE
    columns, rows = cluster_tables.cluster_rows(bodies, now, wide=wide, namespaces=all_namespaces)
    cluster_tables.show(console, cluster_tables.table(columns, rows, console.width))
    for body in bodies if names else []:
        console.print()
        cluster_tables.show(console, cluster_tables.table(*cluster_tables.pool_rows([body]), console.width))
        for line in cluster_tables.troubles(body):
            console.print(line, markup=False, highlight=False)


async def _watch(server: Server, names: list[str], form: Listing | None, *, all_namespaces: bool) -> None:
    """Print clusters as they are and as they change, for ever."""
    for name in names:
        await server.cluster(name)  # one that is not there is said at once
    began = False
    async for body, is_there in follow(server, names, all_namespaces=all_namespaces):
        if not is_there:
            output.write_message(f"{output.reference(body)} deleted")
            continue
        if form is not None and form != Listing.WIDE:
            typer.echo(("---\n" if form == Listing.YAML else "") + output.documents([body], form), nl=False)
            continue
        wide = form == Listing.WIDE
        columns, rows = cluster_tables.cluster_rows([body], datetime.now(UTC), wide=wide, namespaces=all_namespaces)
        for cells in [*([] if began else [columns]), *rows]:
            typer.echo(cluster_tables.line(columns, cells))
        began = True
