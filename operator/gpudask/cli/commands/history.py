"""`gpudask history`: what stays of clusters, also of those that are gone; and a live one's performance report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpudask.api import Json
from gpudask.cli import client, cluster_tables, output, record_tables
from gpudask.cli.completion import records
from gpudask.cli.options import AllNamespaces, Context, Format, Kubeconfig, Namespace, read_name
from gpudask.cli.output import CliError, Exit

if TYPE_CHECKING:
    from rich.console import Console

    from gpudask.kubecluster.kube.server import Server

_FORMS = tuple(form.value for form in Format)
_LAST_COUNT = 1000  # measures of the scheduler's own machine in a report


def history_command(
    *,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A cluster, or a record; all without it.", autocompletion=records),
    ] = None,
    all_namespaces: AllNamespaces = False,
    performance_report: Annotated[
        bool, typer.Option("--performance-report", help="Dask's report of a cluster that runs, as the file of -o.")
    ] = False,
    output_form: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar=f"[{'|'.join(_FORMS)}|FILE]",
            help="For programs, to standard output; with --performance-report a file.",
            autocompletion=lambda: list(_FORMS),
        ),
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show what became of clusters, also of those that are gone.

    Of one: how its pods ended and what they said last, GPU-seconds, tasks, errors and events. The last of its name.

    \b
    Example:
      gpudask history
      gpudask history demo
      gpudask history demo-1f3a9c02 -o json
      gpudask history demo --performance-report -o report.html
    """  # noqa: D301
    if name is not None and all_namespaces:
        raise CliError("a name is of one namespace: leave out -A, or the name", Exit.USAGE)
    target = client.Target(kubeconfig, context, namespace)
    if performance_report:
        _write_report(target, name, output_form)
        return
    if output_form is not None and output_form not in _FORMS:
        raise CliError(f"--output: {output_form!r} is not one of {', '.join(_FORMS)}", Exit.USAGE)
    wanted = None if name is None else read_name(name)
    bodies = client.run(target, lambda server: _read(server, wanted, all_namespaces=all_namespaces))
    if output_form is not None:
        text = output.listed(bodies, output_form) if wanted is None else output.documents(bodies[:1], output_form)
        typer.echo(text, nl=False)
        return
    console = output.console()
    if wanted is None:
        columns, rows = record_tables.list_rows(bodies, namespaces=all_namespaces)
        cluster_tables.show(console, cluster_tables.table(columns, rows, console.width))
        return
    _show(console, bodies)


async def _read(server: Server, name: str | None, *, all_namespaces: bool) -> list[Json]:
    """The records; those of one cluster the last first.

    Raises:
        CliError: there is none of that name.
    """
    if name is None:
        return await server.records(all_namespaces=all_namespaces)
    found = await of_name(server, name)
    if not found:
        there = sorted({record_tables.cluster_of(body) for body in await server.records()})
        names = f"; there are: {', '.join(there)}" if there else ""
        raise CliError(f"no record of a cluster {name!r} in namespace {server.namespace!r}{names}", Exit.NOT_FOUND)
    return found


async def of_name(server: Server, name: str) -> list[Json]:
    """The records of cluster `name`, the last that began first; or the one record of that name."""
    found = await server.records(cluster=name) or [
        body for body in await server.records() if body["metadata"]["name"] == name
    ]
    return sorted(found, key=lambda body: str(record_tables.record_of(body).get("began") or ""), reverse=True)


def _show(console: Console, bodies: list[Json]) -> None:
    body, *earlier = bodies
    for line in record_tables.head(body):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for title, columns, rows in record_tables.tables(body):
        console.print(f"\n{title}", markup=False, highlight=False)
        cluster_tables.show(console, cluster_tables.table(columns, rows, console.width))
    if earlier:
        names = ", ".join(item["metadata"]["name"] for item in earlier)
        output.write_message(f"earlier clusters of this name: gpudask history with one of {names}")


def _write_report(target: client.Target, name: str | None, file: str | None) -> None:
    if name is None or file is None:
        raise CliError(
            "--performance-report is of one cluster, to a file: gpudask history demo -o report.html", Exit.USAGE
        )
    wanted = read_name(name)
    body = client.run(target, lambda server: server.cluster(wanted))
    if not (body["spec"].get("history") or {}).get("performanceReport"):
        raise CliError(
            f"cluster {wanted!r} keeps no task stream, which the report is made of: set"
            " spec.history.performanceReport: true, and run the work again (it takes memory for every task)"
        )
    text = client.run_anything(_report(target, wanted))
    Path(file).write_text(text, encoding="utf-8")
    output.write_message(f"{file}: {len(text.encode())} bytes")


async def _report(target: client.Target, name: str) -> str:
    """The report, which the scheduler draws.

    Raises:
        CliError: it could not.
    """
    from gpudask.kubecluster import KubeCluster  # noqa: PLC0415 - Dask comes with it

    options: dict[str, Any] = {"kubeconfig": target.kubeconfig, "context": target.context, "quiet": True}
    async with KubeCluster.from_name(name, target.namespace, asynchronous=True, **options) as cluster:
        began = time.time() - 365 * 86400.0  # the scheduler's stream is bounded; all of it is wanted
        try:
            return str(await cluster.scheduler_comm.performance_report(start=began, last_count=_LAST_COUNT))
        except ImportError as error:
            raise CliError(f"the scheduler's image cannot draw a report: {error}: install bokeh in it") from error
