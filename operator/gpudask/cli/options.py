"""The options and arguments that commands share, with kubectl's names."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from gpudask.cli.completion import clusters, contexts, namespaces

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
    """What programs read."""

    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class Listing(StrEnum):
    """What `get` can write."""

    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class Document(StrEnum):
    """What whole objects are written as."""

    JSON = "json"
    YAML = "yaml"


class NameOnly(StrEnum):
    """What there is to print of an object that is gone."""

    NAME = "name"


Output = Annotated[Format | None, typer.Option("--output", "-o", help="For programs, to standard output.")]

_BEFORE_A_VERB = ("--kubeconfig", "--context", "--namespace", "-n")


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
    """Of how many words such an option is; 0: it is none."""
    name, is_joined, _ = word.partition("=")
    if name in _BEFORE_A_VERB:
        return 1 if is_joined else 2
    return 1 if word.startswith("-n") else 0
