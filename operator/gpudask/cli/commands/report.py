"""`gpudask report`: one page about a cluster, as an HTML file that loads nothing else."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpudask.api import Json
from gpudask.cli import client, output, untrusted
from gpudask.cli.commands.cost import PriceFile, read_prices
from gpudask.cli.options import Context, Kubeconfig, Name, Namespace
from gpudask.cli.output import CliError, Exit

if TYPE_CHECKING:
    from jinja2 import Template

    from gpudask.cli.cost.prices import Prices
    from gpudask.cli.report.sections import Subject
    from gpudask.kubecluster.kube.server import Server


def report_command(
    *,
    name: Name,
    file: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="The file to write; - is standard output.")
    ] = None,
    prices_file: PriceFile = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Write a page about one cluster.

    It shows where the GPU time went, whose tasks ran, sizes and demand over time, slow starts, what held GPUs idle,
    pods that ended with the last lines that they wrote, tasks and events, and with --prices what it cost. It is one
    HTML file, for any browser and for paper, which loads nothing. A cluster that ended is reported by its record, as
    long as that is kept: the last one of the name, or any by the record's own name.

    \b
    Example:
      gpudask report demo
      gpudask report demo -o report.html --prices prices.yaml
    """  # noqa: D301
    prices = read_prices(prices_file)

    async def read(server: Server) -> Subject:
        return await read_subject(server, name)

    subject = client.run(client.Target(kubeconfig, context, namespace), read)
    text = as_html(subject, datetime.now(UTC).timestamp(), prices)
    path = file or f"{name}.html"
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        Path(path).write_text(text, "utf-8")
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}") from error
    output.write_message(f"wrote {path}")


def as_html(subject: Subject, now: float, prices: Prices | None = None) -> str:
    """The page about a cluster at `now`, seconds since 1970: the template filled with its sections."""
    from gpudask.cli.cost.causes import CAUSES  # noqa: PLC0415 - help does without
    from gpudask.cli.report.sections import page  # noqa: PLC0415
    from gpudask.cli.report.wording import stamp  # noqa: PLC0415

    version = metadata.version("gpudask")
    sections = page(subject, now, prices)
    return _template().render(page=sections, made=stamp(now), version=version, stamp=stamp, causes=list(CAUSES))


@cache
def _template() -> Template:
    """The template, compiled once: that takes far longer than to fill it. jinja2 escapes every text of a section."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - help does without

    # No name of the template's could be forgotten, and none of a tenant's texts be taken for markup.
    environment = Environment(
        loader=PackageLoader("gpudask.cli.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.html")


class _Last:
    """The record of the last cluster of a name, or of the one with a `uid`: no other one is kept."""

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self._created = 0.0
        self.record: Json | None = None

    def see(self, record: Json) -> None:
        """Keep `record`, if it is the one so far."""
        created = untrusted.time(record, "record", "cluster", "created") or 0.0
        is_meant = not self._uid or untrusted.name(record, "record", "cluster", "uid") == self._uid
        if is_meant and (self.record is None or created >= self._created):
            self._created, self.record = created, record


async def read_subject(server: Server, name: str) -> Subject:
    """The cluster of this name and its record; of one that is gone the record alone.

    Raises:
        CliError: there is neither.
        KubeClusterError: the server refuses.
    """
    from gpudask.cli.cost.ledgers import merged, of_cluster, of_record  # noqa: PLC0415 - help does without
    from gpudask.cli.records import find_record, read_records  # noqa: PLC0415
    from gpudask.cli.report.record import parse  # noqa: PLC0415
    from gpudask.cli.report.sections import Subject  # noqa: PLC0415

    body = await server.find(name)
    last = _Last("" if body is None else untrusted.name(body, "metadata", "uid"))
    await read_records(server, last.see, cluster=name)
    record = last.record
    if body is None and record is None:
        record = await find_record(server, name)
        if record is None:
            raise CliError(
                f"no cluster {name!r} in namespace {server.namespace!r}, and no record of one: gpudask cost lists all",
                Exit.NOT_FOUND,
            )
    if body is None:
        assert record is not None
        return Subject(of_record(record), None, parse(record))
    written = [of_record(record)] if record is not None else []
    return Subject(merged([of_cluster(body)], written)[0], body, parse(record) if record is not None else None)
