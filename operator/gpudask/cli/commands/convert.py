"""`gpudask convert`: manifests of the stock Dask operator as ours."""

from __future__ import annotations

from typing import Annotated

import typer

from gpudask.api.resource import Cluster
from gpudask.cli import output
from gpudask.cli.commands.render import objects
from gpudask.cli.manifests import read_documents
from gpudask.cli.options import Document, Manifest
from gpudask.cli.output import CliError
from gpudask.stock.conversion import NotConvertibleError, convert
from gpudask.stock.notes import Notes

Strict = Annotated[bool, typer.Option(help="Fail where anything was not carried over, or had to be assumed.")]
Form = Annotated[Document, typer.Option("--output", "-o", help="What to write.")]


def convert_command(*, file: Manifest, strict: Strict = False, output_form: Form = Document.YAML) -> None:
    """Turn the stock operator's manifests into ours.

    A DaskCluster, its DaskWorkerGroups and its DaskAutoscaler become a GpuDaskCluster. No
    cluster is needed. The result goes to standard output; what was not carried over, what had to be assumed, and
    hints go to standard error, one line each with the field's name.

    \b
    Example:
      gpudask convert dask-cluster.yaml > gpudask-cluster.yaml
      kubectl get daskcluster,daskworkergroup,daskautoscaler -o yaml | gpudask convert - --strict
    """  # noqa: D301 - \b keeps the example's lines apart
    notes = Notes()
    try:
        made = convert(_unpacked(read_documents(file)), notes, check=merge_templates)
    except NotConvertibleError as error:
        raise CliError(str(error)) from error
    typer.echo(output.documents(made, output_form, whole_list=False), nl=False)
    for note in notes.items:
        output.write_message(str(note))
    if strict and notes.counted:
        raise CliError(f"--strict: {len(notes.counted)} notes above are no hints")


def _unpacked(documents: list[object]) -> list[object]:
    """The documents, with those that `kubectl get -o yaml` puts into one List."""
    found: list[object] = []
    for document in documents:
        several = isinstance(document, dict) and document.get("kind") == "List"
        found += document.get("items") or [] if several and isinstance(document, dict) else [document]
    return found


def merge_templates(cluster: Cluster) -> None:
    """Render the cluster: what its templates say may fit no pod."""
    objects(cluster, {}, one_of_each=True)
