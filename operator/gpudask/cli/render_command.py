"""`gpudask render`: the objects that a manifest would become, without a cluster."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from gpudask.cli import output
from gpudask.cli.exits import CliError
from gpudask.cli.manifests import checked, namespace_of, read_clusters
from gpudask.cli.options import Format, Manifest, Namespace
from gpudask.cli.rendering import PLACEHOLDER_UID, objects
from gpudask.preload import files

Json = dict[str, Any]
Form = Annotated[Format, typer.Option("--output", "-o", help="What to write.")]
OneOfEach = Annotated[bool, typer.Option("--one-of-each", help="One worker pod a pool, whatever its size.")]


def render_command(
    *,
    file: Manifest,
    one_of_each: OneOfEach = False,
    output_form: Form = Format.YAML,
    namespace: Namespace = None,
) -> None:
    """Print the objects that a manifest becomes.

    They are the scheduler, its Service, ConfigMaps, budget and NetworkPolicy, and the worker pods. No cluster is
    needed. The number of worker pods is the one at the start: replicas, or the minimum. What only the
    operator knows are placeholders: the owner's uid, the token, and a part of each worker's name.

    \b
    Example:
      gpudask render demo.yaml
      gpudask render demo.yaml --one-of-each -o name
    """  # noqa: D301
    bodies = read_clusters(file)
    place = namespace_of(bodies, namespace) or "default"
    made = [item for body in bodies for item in _objects(body, place, one_of_each=one_of_each)]
    typer.echo(output.documents(made, output_form, whole_list=False), nl=False)


def _objects(body: Json, namespace: str, *, one_of_each: bool) -> list[Json]:
    cluster = checked(body, namespace, PLACEHOLDER_UID)
    try:
        return objects(cluster, files(), now=time.time(), one_of_each=one_of_each)
    except ValueError as error:
        raise CliError(f"{cluster.name}: the template cannot be merged: {error}") from error
