"""`gpudask history`: what stays of clusters, also of those that are gone; and a live one's performance report."""

from __future__ import annotations

import time
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpudask.api import Json
from gpudask.api.resource import API_VERSION, RECORD_KIND
from gpudask.cli import client, cluster_tables, output
from gpudask.cli.completion import records
from gpudask.cli.options import AllNamespaces, Context, Format, Kubeconfig, Namespace, read_name
from gpudask.cli.output import CliError, Exit
from gpudask.cli.records import find_record, read_records

if TYPE_CHECKING:
    from rich.console import Console

    from gpudask.cli.record_tables import Entry
    from gpudask.kubecluster.kube.server import Server

_FORMS = tuple(form.value for form in Format)
_KIND = {"apiVersion": API_VERSION, "kind": RECORD_KIND}  # of which an answer of metadata alone says nothing
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
    if wanted is None:
        _list(target, output_form, all_namespaces=all_namespaces)
        return
    body, earlier = client.run(target, lambda server: _read(server, wanted))
    if output_form is not None:
        typer.echo(output.documents([body], output_form), nl=False)
        return
    _show(output.console(), body, earlier)


def _list(target: client.Target, form: str | None, *, all_namespaces: bool) -> None:
    """Print all records: as a table, of whose rows no more is kept than they show, or whole as they come."""
    from gpudask.cli.record_tables import entry, list_rows  # noqa: PLC0415 - help does without

    if form is not None:
        client.run(target, lambda server: _write_list(server, form, all_namespaces=all_namespaces))
        return

    async def read(server: Server) -> list[Entry]:
        return await read_records(server, entry, all_namespaces=all_namespaces, needed=True)

    columns, rows = list_rows(client.run(target, read), namespaces=all_namespaces)
    console = output.console()
    cluster_tables.show(console, cluster_tables.table(columns, rows, console.width))


async def _write_list(server: Server, form: str, *, all_namespaces: bool) -> None:
    """Write all records for programs, each as it comes."""
    names_alone = form == Format.NAME
    found = server.each_record(all_namespaces=all_namespaces, metadata_only=names_alone)
    async with aclosing(found) as bodies:
        if names_alone:
            async for body in bodies:
                typer.echo(output.documents([_KIND | {"metadata": body["metadata"]}], form), nl=False)
        else:
            await output.write_list(bodies, form)


async def _read(server: Server, name: str) -> tuple[Json, list[str]]:
    """The last record of cluster `name`, and the names of the earlier ones; or the one record of that name.

    Raises:
        CliError: there is none of that name.
    """
    from gpudask.cli.record_tables import entry  # noqa: PLC0415 - help does without

    entries = await read_records(server, entry, cluster=name, needed=True)
    last, *earlier = [each.name for each in sorted(entries, key=lambda each: -each.began)] or [name]
    body = await find_record(server, last)
    if body is None:
        there = sorted({each.cluster for each in await read_records(server, entry, needed=True)})
        names = f"; there are: {', '.join(there)}" if there else ""
        raise CliError(f"no record of a cluster {name!r} in namespace {server.namespace!r}{names}", Exit.NOT_FOUND)
    return body, earlier


def _show(console: Console, body: Json, earlier: list[str]) -> None:
    from gpudask.cli.cost.ledgers import of_record  # noqa: PLC0415 - help does without
    from gpudask.cli.record_tables import head, tables  # noqa: PLC0415
    from gpudask.cli.report.record import parse  # noqa: PLC0415

    record, ledger = parse(body), of_record(body)
    for line in head(record, ledger):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for title, columns, rows in tables(record, ledger):
        console.print(f"\n{title}", markup=False, highlight=False)
        cluster_tables.show(console, cluster_tables.table(columns, rows, console.width))
    if earlier:
        output.write_message(f"earlier clusters of this name: gpudask history with one of {', '.join(earlier)}")


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
