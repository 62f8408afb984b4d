"""The options and arguments that commands share, with kubectl's names."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer

from gpudask.api.resource import (
    GROUP,
    JOB_PLURAL,
    JOB_SHORT,
    JOB_SINGULAR,
    PLURAL,
    SHORT,
    SINGULAR,
    VERSION,
)
from gpudask.cli import jsonpath
from gpudask.cli.completion import clusters, contexts, jobs, namespaces
from gpudask.cli.output import JSONPATH, CliError, Exit


def _reference(short: str, singular: str, plural: str) -> re.Pattern[str]:
    return re.compile(rf"^({short}|{singular}|{plural})(\.({VERSION}\.)?{re.escape(GROUP)})?/", re.IGNORECASE)


_REFERENCE = _reference(SHORT, SINGULAR, PLURAL)
_JOB_REFERENCE = _reference(JOB_SHORT, JOB_SINGULAR, JOB_PLURAL)
# What may stand in a URL as the name of an object or of a namespace, whatever rules there are beside.
_NAME = re.compile(r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$")


def read_name(text: str, kind: str = "cluster", reference: re.Pattern[str] = _REFERENCE) -> str:
    """The name of a cluster, of itself or of what `-o name` prints: `gpudaskcluster.gpudask.dev/demo`.

    Raises:
        typer.BadParameter: it is none; nothing was asked yet.
    """
    name = reference.sub("", text)
    if not name:
        raise typer.BadParameter("the name is empty: is a variable of the script not set?")
    if not _NAME.match(name):
        raise typer.BadParameter(f"{text!r} is no {kind}'s name: write lower-case letters, digits and hyphens")
    return name


def _read_job_name(ctx: typer.Context, value: str) -> str:
    return value if ctx.resilient_parsing else read_name(value, "job", _JOB_REFERENCE)


def _read_name(ctx: typer.Context, value: str | None) -> str | None:
    return value if value is None or ctx.resilient_parsing else read_name(value)


def read_names(ctx: typer.Context, value: list[str] | None) -> list[str] | None:
    """Read several names, as `read_name`."""
    return value if value is None or ctx.resilient_parsing else [read_name(text) for text in value]


def check_namespace(name: str) -> None:
    """Refuse what can be no namespace.

    Raises:
        typer.BadParameter: it is none; nothing was asked yet.
    """
    if not _NAME.match(name):
        raise typer.BadParameter(f"{name!r} is no namespace: write lower-case letters, digits and hyphens")


def _read_namespace(ctx: typer.Context, value: str | None) -> str | None:
    if value and not ctx.resilient_parsing:
        check_namespace(value)
    return value


def _read_selector(ctx: typer.Context, value: str | None) -> str | None:
    if value is not None and not value.strip() and not ctx.resilient_parsing:
        raise typer.BadParameter("it is empty, which is every cluster: is a variable of the script not set?")
    return value


def _form_of(*known: str) -> Callable[[typer.Context, str | None], str | None]:
    """What reads a form: one of these, or a template."""

    def read(ctx: typer.Context, value: str | None) -> str | None:
        if value is None or value in known or ctx.resilient_parsing:
            return value
        if not value.startswith(JSONPATH):
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(map(repr, known))}, '{JSONPATH}TEMPLATE'")
        try:
            jsonpath.read(value.removeprefix(JSONPATH))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        return value

    return read


Kubeconfig = Annotated[
    str | None, typer.Option(help="The kubeconfig file; by default KUBECONFIG's, then ~/.kube/config.")
]
Context = Annotated[
    str | None, typer.Option(help="The kubeconfig's context; by default the current one.", autocompletion=contexts)
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        help="By default the context's own namespace.",
        autocompletion=namespaces,
        callback=_read_namespace,
    ),
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="In all namespaces.")]
Name = Annotated[str, typer.Argument(help="The cluster's name.", autocompletion=clusters, callback=_read_name)]
JobName = Annotated[str, typer.Argument(help="The job's name.", autocompletion=jobs, callback=_read_job_name)]
OnCluster = Annotated[
    str | None,
    typer.Option(
        "--on", metavar="CLUSTER", help="Use one that is there.", autocompletion=clusters, callback=_read_name
    ),
]
Wanted = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="One cluster; all without it.", autocompletion=clusters, callback=_read_name),
]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="The clusters' names.", autocompletion=clusters, callback=read_names),
]
Selector = Annotated[
    str | None,
    typer.Option("--selector", "-l", help="Those with these labels, such as team=vision.", callback=_read_selector),
]
IgnoreNotFound = Annotated[bool, typer.Option("--ignore-not-found", help="One that is not there is no error.")]
Manifest = Annotated[str, typer.Argument(metavar="FILE", help="A YAML file; - reads standard input.")]


class Format(StrEnum):
    """The formats for programs."""

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


WIDE = "wide"
_OF_ALL = (Format.JSON.value, Format.YAML.value, Format.NAME.value)
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar=f"[{'|'.join(_OF_ALL)}|jsonpath=...]",
        help="For programs, to standard output.",
        callback=_form_of(*_OF_ALL),
        autocompletion=lambda: list(_OF_ALL),
    ),
]
Listing = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar=f"[{'|'.join((WIDE, *_OF_ALL))}|jsonpath=...]",
        help="wide for people, the rest for programs.",
        callback=_form_of(WIDE, *_OF_ALL),
        autocompletion=lambda: [WIDE, *_OF_ALL],
    ),
]


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


def names_or_selector(names: list[str] | None, selector: str | None) -> list[str]:
    """The names that were given; none where a selector finds them.

    Raises:
        CliError: neither is there, or both.
    """
    if bool(names) == (selector is not None):
        raise CliError("name the clusters, or find them with -l" + (", not both" if names else ""), Exit.USAGE)
    return names or []
