"""Output: results go to standard output, messages for people to standard error; and exit codes."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import typer
import yaml

from gpudask.api import Json
from gpudask.api.resource import GROUP, JOB_SINGULAR, SINGULAR
from gpudask.cli import jsonpath

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_COLUMNS = 10_000
JSONPATH = "jsonpath="


class Exit(IntEnum):
    """The exit codes, which a script may compare."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    TIMED_OUT = 4
    PROBLEM_FOUND = 5
    INTERRUPTED = 130
    UNREAD = 141

    @property
    def meaning(self) -> str:
        """The meaning of the code, for help and docs."""
        return _MEANINGS[self]


_MEANINGS = {
    Exit.OK: "done",
    Exit.FAILED: "refused, not valid, or the API server cannot be reached",
    Exit.USAGE: "the command line is not right",
    Exit.NOT_FOUND: "no such cluster, pool or pod",
    Exit.TIMED_OUT: "what was waited for did not come in time",
    Exit.PROBLEM_FOUND: "doctor found a problem",
    Exit.INTERRUPTED: "interrupted (ctrl-C)",
    Exit.UNREAD: "whoever read its output has ended, such as head",
}


def ended(text: str) -> str:
    """`text` as a sentence that another may follow; others' messages come with and without an end."""
    return text if text.endswith((".", "?", "!")) else f"{text}."


class CliError(Exception):
    """The error that ends a command: a message for people, and the exit code."""

    def __init__(self, text: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(text)
        self.code = code


def write_message(text: str) -> None:
    """Write a message that is not the result."""
    typer.echo(text, err=True)


def documents(bodies: list[Json], form: str, *, whole_list: bool = True) -> str:
    """Objects as text: one as it is, several as a List (json, yaml) or a line each (name).

    Args:
        bodies: the objects; what only the API server keeps about fields is left out, as kubectl does.
        form: json, yaml, name, or jsonpath= and a template.
        whole_list: False for YAML documents with --- between, which can be applied.
    """
    if form == "name":
        return "".join(f"{reference(body)}\n" for body in bodies)
    if form.startswith(JSONPATH):
        return jsonpath.render(form.removeprefix(JSONPATH), bodies[0] if len(bodies) == 1 else _list(bodies))
    plain = [_without_bookkeeping(body) for body in bodies]
    if form == "yaml" and not whole_list:
        return yaml.dump_all(plain, Dumper=_Plain, sort_keys=False, width=110)
    return as_text(plain[0], form) if len(plain) == 1 else listed(bodies, form)


def listed(bodies: list[Json], form: str) -> str:
    """Objects as `documents` has them, json and yaml as a List even of one: programs need not tell one from several."""
    if form == "name":
        return documents(bodies, form)
    if form.startswith(JSONPATH):
        return jsonpath.render(form.removeprefix(JSONPATH), _list(bodies))
    return as_text(_list([_without_bookkeeping(body) for body in bodies]), form)


async def write_list(bodies: AsyncIterator[Json], form: str) -> None:
    """Write the text of `listed` to standard output, each object as it comes: so no two of them are held at once.

    Where `bodies` fails before its first object nothing is written; later what was written is no whole document.

    Args:
        bodies: the objects.
        form: json or yaml.
    """
    empty = as_text(_list([]), form)
    if form == "json":
        head, tail = empty.split("[]")
        head, between, tail = f"{head}[", ",", f"\n  ]{tail}"
    else:
        head, between, tail = empty.removesuffix(" []\n") + "\n", "", ""
    is_first = True
    async for body in bodies:
        typer.echo((head if is_first else between) + _list_item(body, form), nl=False)
        is_first = False
    typer.echo(empty if is_first else tail, nl=False)


def _list_item(body: Json, form: str) -> str:
    """An object as it stands in a List, with the newline before it in JSON, and after it in YAML."""
    text = as_text([_without_bookkeeping(body)], form)
    if form != "json":
        return text
    # Deeper by the List's own indent: the newlines within a text are escaped.
    return text.removeprefix("[").removesuffix("\n]\n").replace("\n", "\n  ")


def _list(items: list[Json]) -> Json:
    return {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}


def as_text(value: Any, form: str) -> str:
    """JSON or YAML of any value."""
    if form == "json":
        return json.dumps(value, indent=2) + "\n"
    return yaml.dump(value, Dumper=_Plain, sort_keys=False, width=110)


def reference(body: Json) -> str:
    """`gpudaskcluster.gpudask.dev/demo`, as `-o name` and messages have it."""
    kind, version = str(body.get("kind", "")).lower(), str(body.get("apiVersion", ""))
    group = version.rpartition("/")[0]
    return f"{kind}{'.' if group else ''}{group}/{body['metadata']['name']}"


def cluster_reference(name: str) -> str:
    """The reference of a GpuDaskCluster, by its name."""
    return f"{SINGULAR}.{GROUP}/{name}"


def job_reference(name: str) -> str:
    """The reference of a GpuDaskJob, by its name."""
    return f"{JOB_SINGULAR}.{GROUP}/{name}"


def console() -> Console:
    """Standard output for tables; a pipe has no width that would cut them, and no style, whatever FORCE_COLOR says."""
    from rich.console import Console  # noqa: PLC0415

    if sys.stdout.isatty():
        return Console()
    return Console(width=_PIPE_COLUMNS, no_color=True, force_terminal=False)


def is_unread() -> bool:
    """True if nobody reads standard output any more: the other end of its pipe, or its terminal, was closed."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except (AttributeError, OSError, ValueError):  # Windows has no poll; and what is no file cannot be closed
        return False
    return bool(poll.poll(0))


def let_go() -> None:
    """Write to nowhere from now on: what is left for a pipe that was closed is no error at the end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _without_bookkeeping(body: Json) -> Json:
    metadata = body.get("metadata", {})
    return {**body, "metadata": {key: item for key, item in metadata.items() if key != "managedFields"}}


class _Plain(yaml.SafeDumper):
    """Writes every part out: people and some tools read no YAML aliases."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is the library's
        return True
