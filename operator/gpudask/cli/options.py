"""The options and arguments that commands share, with kubectl's names."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from gpudask.api.base import seconds
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
_BEFORE_A_VERB = ("--kubeconfig", "--context", "--namespace", "-n")


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


def verb_first(words: list[str]) -> list[str]:
    """The words of a command line with what stands before the command put behind it: kubectl takes both ways.

    What was written behind it counts more, because it comes later.
    """
    taken, rest = [], list(words)
    while rest and (length := _length(rest[0])):
        taken += rest[:length]
        rest = rest[length:]
    return [rest[0], *taken, *rest[1:]] if rest else list(words)


def _length(word: str) -> int:
    """The number of words of such an option; 0: it is none."""
    name, is_joined, _ = word.partition("=")
    if name in _BEFORE_A_VERB:
        return 1 if is_joined else 2
    return 1 if word.startswith("-n") else 0


def read_length(text: str, flag: str = "--for") -> float:
    """`2h`, the value of `flag`, in seconds.

    Raises:
        CliError: it is no duration, or none at all.
    """
    try:
        length = seconds(text)
    except ValueError as error:
        raise CliError(f"{flag} {error}", Exit.USAGE) from error
    if length <= 0:
        raise CliError(f"{flag} {text}: no time at all; write for example 2h", Exit.USAGE)
    return length
