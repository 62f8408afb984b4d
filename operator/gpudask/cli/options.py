"""The options and arguments that commands share, with kubectl's names."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from gpudask.cli.completion import clusters, contexts, namespaces
from gpudask.cli.output import CliError, Exit

Kubeconfig = Annotated[
    str | None, typer.Option(help="The kubeconfig file; by default KUBECONFIG's, then ~/.kube/config.")
]
Context = Annotated[
    str | None, typer.Option(help="The kubeconfig's context; by default the current one.", autocompletion=contexts)
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="By default the context's own namespace.", autocompletion=namespaces),
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="In all namespaces.")]
Name = Annotated[str, typer.Argument(help="The cluster's name.", autocompletion=clusters)]
Names = Annotated[list[str], typer.Argument(help="The clusters' names.", autocompletion=clusters)]
Manifest = Annotated[str, typer.Argument(metavar="FILE", help="A YAML file; - reads standard input.")]


class Format(StrEnum):
    """The formats for programs."""

    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class Listing(StrEnum):
    """The formats of `get`."""

    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class Document(StrEnum):
    """The formats of whole objects."""

    JSON = "json"
    YAML = "yaml"


class NameOnly(StrEnum):
    """The format of an object that is gone: there is its name alone."""

    NAME = "name"


Output = Annotated[Format | None, typer.Option("--output", "-o", help="For programs, to standard output.")]


def read_length(text: str, flag: str = "--for") -> float:
    """`2h`, the value of `flag`, in seconds.

    Raises:
        CliError: it is no duration, or none at all.
    """
    from gpudask.api.base import seconds  # noqa: PLC0415 - the models take long to load

    try:
        length = seconds(text)
    except ValueError as error:
        raise CliError(f"{flag} {error}", Exit.USAGE) from error
    if length <= 0:
        raise CliError(f"{flag} {text}: no time at all; write for example 2h", Exit.USAGE)
    return length
