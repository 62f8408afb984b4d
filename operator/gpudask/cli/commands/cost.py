"""`gpudask cost`: what GPUs cost, and what of it worked, of clusters that are there and of those that ended."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from gpudask.cli import cluster_tables, output
from gpudask.cli.client import Target, run
from gpudask.cli.options import AllNamespaces, Context, Kubeconfig, Names, Namespace, read_length
from gpudask.cli.output import CliError, Exit

if TYPE_CHECKING:
    from gpudask.cli.cost.ledgers import ClusterLedger
    from gpudask.cli.cost.prices import Prices
    from gpudask.cli.cost.statement import Row, Statement
    from gpudask.kubecluster.kube.server import Server

_DAYS = re.compile(r"(\d{1,5})d(.*)")
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./]{0,251}[A-Za-z0-9])?")
_MOST_DIMENSIONS = 6
_DAY_SECONDS = 86400
# A spreadsheet takes a cell that begins so for a formula: https://owasp.org/www-community/attacks/CSV_Injection
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_COLUMNS = ("gpuHours", "gpuHoursWorked", "gpuHoursIdle", "worked", "money", "moneyIdle")


class Form(StrEnum):
    """The formats for programs."""

    JSON = "json"
    CSV = "csv"


PriceFile = Annotated[
    str | None,
    typer.Option("--prices", metavar="FILE", help="What GPUs cost an hour, in YAML; - reads standard input."),
]


def cost_command(
    *,
    names: Names = None,
    since: Annotated[
        str | None, typer.Option(help="Count from then on: 7d, 12h, or a date such as 2026-11-01; UTC.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="Group by these, with commas between: cluster, pool, cause, owner, namespace, or a label's name.",
        ),
    ] = None,
    prices_file: PriceFile = None,
    all_namespaces: AllNamespaces = False,
    output_form: Annotated[Form | None, typer.Option("--output", "-o", help="For programs.")] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show what GPUs cost, and what of it worked.

    Counted are the GPUs of pods that have a node: of clusters that are there by their status, of those that ended by
    their records, as long as these are kept. A row's hours are those of work and of everything else; --prices adds
    what they cost. An older cluster that --since cuts is estimated from its record's samples, or counted whole, which
    is said.

    \b
    Example:
      gpudask cost
      gpudask cost -A --by team --since 7d --prices prices.yaml
      gpudask cost demo --by cause
      gpudask cost -A --by team,owner -o csv
    """  # noqa: D301
    if names and all_namespaces:
        raise CliError("a name is of one namespace: leave out -A, or the name", Exit.USAGE)
    now = datetime.now(UTC)
    dimensions = read_dimensions(by, all_namespaces=all_namespaces)
    start = None if since is None else read_start(since, now)
    prices = read_prices(prices_file)

    async def read(server: Server) -> list[ClusterLedger]:
        return await read_ledgers(server, names or [], all_namespaces=all_namespaces)

    ledgers = run(Target(kubeconfig, context, namespace), read)
    made, notes = _state(ledgers, dimensions, prices, start, now.timestamp())
    for note in notes:
        output.write_message(note)
    if output_form == Form.JSON:
        typer.echo(output.as_text(document(made, notes, start, now), "json"), nl=False)
    elif output_form == Form.CSV:
        typer.echo(as_csv(made), nl=False)
    elif not made.rows:
        output.write_message("no pool has held a GPU" + (" since then" if start is not None else ""))
    else:
        console = output.console()
        cluster_tables.show(console, cluster_tables.table(*cost_rows(made), console.width))


async def read_ledgers(server: Server, names: list[str], *, all_namespaces: bool = False) -> list[ClusterLedger]:
    """The ledgers of all clusters, or of those with these names, each once.

    Raises:
        CliError: one that is named was never there, as far as anybody knows.
        KubeClusterError: the server refuses.
    """
    from gpudask.cli.cost import ledgers  # noqa: PLC0415 - help does without
    from gpudask.cli.records import read_records  # noqa: PLC0415

    clusters = [ledgers.of_cluster(body) for body in await server.clusters(all_namespaces=all_namespaces)]
    records = await read_records(server, ledgers.of_record, all_namespaces=all_namespaces)
    found = ledgers.merged(clusters, records)
    known = {ledger.name for ledger in found}
    for name in names:
        if name not in known:
            raise CliError(
                f"no cluster {name!r} in namespace {server.namespace!r}, and no record of one: gpudask cost lists all",
                Exit.NOT_FOUND,
            )
    return [ledger for ledger in found if not names or ledger.name in names]


def _state(
    ledgers: list[ClusterLedger], by: list[str], prices: Prices | None, start: float | None, now: float
) -> tuple[Statement, list[str]]:
    """The statement from `start` on, and what has to be said of it."""
    from gpudask.cli.cost import statement  # noqa: PLC0415
    from gpudask.cli.cost.ledgers import Window, since  # noqa: PLC0415

    notes = [
        f"no cluster has a label or an annotation {label!r}: is it what you mean?"
        for label, is_known in statement.labels(by, ledgers).items()
        if ledgers and not is_known
    ]
    if start is not None:
        cut = [since(ledger, start, now) for ledger in ledgers]
        ledgers = [ledger for ledger, _ in cut]
        for window, said in (
            (Window.ESTIMATED, "began before; estimated from the samples of their records"),
            (Window.UNCUT, "began before, and have no samples of all that they held: all of it is counted"),
        ):
            those = [ledger.name for ledger, found in cut if found == window and ledger.pools]
            notes += [f"{_listed(those)}: {said}"] if those else []
    made = statement.statement(ledgers, by, prices)
    if made.unpriced:
        notes.append(f"{_listed(made.unpriced)}: no price, counted as 0: add a rule or a default to the price file")
    return made, notes


def _listed(names: list[str] | tuple[str, ...], most: int = 5) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def read_dimensions(text: str | None, *, all_namespaces: bool) -> list[str]:
    """The dimensions of `--by`; by default the cluster, with its namespace where there are several.

    Raises:
        CliError: one cannot be the name of a label, or there are too many.
    """
    if text is None:
        return ["namespace", "cluster"] if all_namespaces else ["cluster"]
    found = list(dict.fromkeys(part.strip() for part in text.split(",")))
    for part in found:
        if not _LABEL.fullmatch(part):
            raise CliError(
                f"--by {text}: {part!r} is no label's name: write for example --by team,cluster,cause", Exit.USAGE
            )
    if len(found) > _MOST_DIMENSIONS:
        raise CliError(f"--by {text}: {_MOST_DIMENSIONS} at most", Exit.USAGE)
    return found


def read_start(text: str, now: datetime) -> float:
    """The beginning of `--since`, in seconds since 1970: so long before `now`, or a date or a time, by default in UTC.

    Raises:
        CliError: it is neither, or lies ahead.
    """
    days = _DAYS.fullmatch(text)
    if days is not None:
        rest = read_length(days[2], "--since") if days[2] else 0.0
        return now.timestamp() - int(days[1]) * _DAY_SECONDS - rest
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return now.timestamp() - read_length(text, "--since")
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    if at >= now:
        raise CliError(f"--since {text} lies ahead", Exit.USAGE)
    return at.timestamp()


def read_prices(file: str | None) -> Prices | None:
    """The prices of a file, None without one.

    Raises:
        CliError: it cannot be read, or is not valid; the message names the field.
    """
    if file is None:
        return None
    from gpudask.cli.cost.prices import parse  # noqa: PLC0415 - pydantic takes long to load
    from gpudask.cli.manifests import read_documents  # noqa: PLC0415

    found = read_documents(file)
    if len(found) != 1:
        raise CliError(f"{file} holds {len(found)} documents: write one", Exit.USAGE)
    return parse(found[0], file)


def cost_rows(made: Statement) -> cluster_tables.Rows:
    """The table for people, with a row of the sums where there are several."""
    with_money = made.total.money is not None
    columns = [dimension.upper() for dimension in made.by] + ["GPU-HOURS", "WORKED"]
    columns += [made.currency, f"{made.currency} IDLE"] if with_money else []
    rows = [[key or "-" for key in row.keys] + _cells(row) for row in made.rows]
    if len(rows) > 1:
        rows.append(["TOTAL"] + [""] * (len(made.by) - 1) + _cells(made.total))
    return columns, rows


def _cells(row: Row) -> list[str]:
    cells = [f"{row.hours:.2f}", f"{row.share:.0%}"]
    return cells if row.money is None else [*cells, f"{row.money:.2f}", f"{row.money_idle:.2f}"]


def document(made: Statement, notes: list[str], start: float | None, now: datetime) -> dict[str, object]:
    """The statement for programs."""
    from gpudask.cli.cost import statement  # noqa: PLC0415

    def text(at: datetime) -> str:
        return f"{at:%Y-%m-%dT%H:%M:%SZ}"

    return {
        "since": None if start is None else text(datetime.fromtimestamp(start, UTC)),
        "until": text(now),
        "by": list(made.by),
        "currency": made.currency or None,
        "rows": statement.as_json(made),
        "total": statement.figures(made.total),
        "unpriced": list(made.unpriced),
        "notes": notes,
    }


def as_csv(made: Statement) -> str:
    """The rows for spreadsheets, without the sum, which they make themselves; `currency` is empty without prices."""
    from gpudask.cli.cost import statement  # noqa: PLC0415

    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow([*made.by, *_COLUMNS, "currency"])
    for row in made.rows:
        figures = statement.figures(row)
        cells = [_plain(key) for key in row.keys] + [figures[column] for column in _COLUMNS]
        writer.writerow(["" if cell is None else cell for cell in (*cells, made.currency)])
    return written.getvalue()


def _plain(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
