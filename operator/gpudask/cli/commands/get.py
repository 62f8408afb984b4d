"""`gpudask get`: clusters at a glance, or one with its pools."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from gpudask.api import Json
from gpudask.cli import client, cluster_tables, output
from gpudask.cli.completion import clusters
from gpudask.cli.options import (
    WIDE,
    AllNamespaces,
    Context,
    Format,
    IgnoreNotFound,
    Kubeconfig,
    Listing,
    Namespace,
    Selector,
    read_names,
)
from gpudask.cli.output import CliError, Exit
from gpudask.cli.watch import follow

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server

Wanted = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="Clusters; all without it.", autocompletion=clusters, callback=read_names),
]
NoHeaders = Annotated[bool, typer.Option("--no-headers", help="Without the heads of the columns.")]


def get_command(
    *,
    names: Wanted = None,
    all_namespaces: AllNamespaces = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on with a line for each change, until ctrl-C.")
    ] = False,
    selector: Selector = None,
    no_headers: NoHeaders = False,
    ignore_not_found: IgnoreNotFound = False,
    output_form: Listing = None,
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
      gpudask get -l team=vision --no-headers
      gpudask get demo -o jsonpath='{.status.phase}'
    """  # noqa: D301
    if names and all_namespaces:
        raise CliError("a name is of one namespace: leave out -A, or the name", Exit.USAGE)

    if names and selector is not None:
        raise CliError("name the clusters, or find them with -l, not both", Exit.USAGE)

    target = client.Target(kubeconfig, context, namespace)
    if watch:
        shown = _Shown(names or [], selector or "", output_form, all_namespaces=all_namespaces, heads=not no_headers)
        client.run(target, lambda server: client.while_read(_watch(server, shown)))

    async def read(server: Server) -> tuple[list[Json], str]:
        place = "any namespace" if all_namespaces else f"namespace {server.namespace}"
        bodies = await client.chosen(
            server, names or [], selector, all_namespaces=all_namespaces, ignore_not_found=ignore_not_found
        )
        return bodies, place

    bodies, place = client.run(target, read)
    if output_form is not None and output_form != WIDE:
        listed = names is not None and len(names) == 1 and len(bodies) == 1
        typer.echo(output.documents(bodies, output_form) if listed else output.listed(bodies, output_form), nl=False)
        return
    if not bodies and names:
        return
    if not bodies:
        output.write_message(f"no clusters found in {place}; gpudask create makes one")
        return
    now = datetime.now(UTC)
    console = output.console()
    wide = output_form == WIDE
    columns, rows = cluster_tables.cluster_rows(bodies, now, wide=wide, namespaces=all_namespaces)
    cluster_tables.show(console, cluster_tables.table(columns, rows, console.width, heads=not no_headers))
    for body in bodies if names else []:
        console.print()
        pools = cluster_tables.table(*cluster_tables.pool_rows([body]), console.width, heads=not no_headers)
        cluster_tables.show(console, pools)
        for line in cluster_tables.troubles(body):
            console.print(line, markup=False, highlight=False)


@dataclass(frozen=True)
class _Shown:
    """What a watch is of, and how it is printed."""

    names: list[str]
    selector: str
    form: str | None
    all_namespaces: bool
    heads: bool


async def _watch(server: Server, shown: _Shown) -> None:
    """Print clusters as they are and as they change, for ever."""
    for name in shown.names:
        await server.cluster(name)  # one that is not there is said at once
    heads = shown.heads
    changes = follow(server, shown.names, all_namespaces=shown.all_namespaces, selector=shown.selector)
    async for body, is_there in changes:
        if not is_there:
            output.write_message(f"{output.reference(body)} deleted")
            continue
        if shown.form is not None and shown.form != WIDE:
            text = output.documents([body], shown.form)
            typer.echo(("---\n" if shown.form == Format.YAML else "") + text, nl=False)
            continue
        wide = shown.form == WIDE
        now = datetime.now(UTC)
        columns, rows = cluster_tables.cluster_rows([body], now, wide=wide, namespaces=shown.all_namespaces)
        for cells in [*([columns] if heads else []), *rows]:
            typer.echo(cluster_tables.line(columns, cells))
        heads = False
