"""The app: every command under its name, and how errors become exit codes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gpudask.cli import completion
from gpudask.cli.commands.connect import connect_command, dashboard_command
from gpudask.cli.commands.convert import convert_command
from gpudask.cli.commands.create import create_command
from gpudask.cli.commands.delete import delete_command
from gpudask.cli.commands.doctor import doctor_command
from gpudask.cli.commands.get import get_command
from gpudask.cli.commands.logs import logs_command
from gpudask.cli.commands.render import render_command
from gpudask.cli.commands.scale import scale_command
from gpudask.cli.commands.suspend import resume_command, suspend_command
from gpudask.cli.commands.top import top_command
from gpudask.cli.commands.wait import wait_command
from gpudask.cli.options import verb_first
from gpudask.cli.output import CliError, Exit, ended, write_message
from gpudask.kubecluster.errors import KubeClusterError

PLUGIN = "kubectl-gpudask"
_NAMESPACE = "another namespace=", "another namespace, with -n"  # as Python's words are written in a shell
CODES = "Exit codes: " + "; ".join(f"{code.value} {code.meaning}" for code in Exit) + "."
COMMANDS: dict[str, Callable[..., None]] = {
    "get": get_command,
    "create": create_command,
    "scale": scale_command,
    "suspend": suspend_command,
    "resume": resume_command,
    "delete": delete_command,
    "wait": wait_command,
    "logs": logs_command,
    "top": top_command,
    "dashboard": dashboard_command,
    "connect": connect_command,
    "convert": convert_command,
    "render": render_command,
    "doctor": doctor_command,
}
# Of typer's own parser or of click, as the version has it: only its children have a public name in both.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_NOISE = "Value error, "


class Commands(TyperGroup):
    """The commands in their order; an error that is known is one line and an exit code, never a traceback."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **options: Any) -> Any:
        """Read what stands before a command; completion reads half a line, which has no errors."""
        args = verb_first(args)
        if options.get("resilient_parsing"):
            return super().make_context(info_name, args, *rest, **options)
        with _one_line():
            return super().make_context(info_name, args, *rest, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with _one_line():
            return super().invoke(ctx)


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        try:
            yield
        except UsageError as error:
            if _is_help(error):
                raise
            raise _usage_error(error) from error
    except CliError as error:
        _print_error(str(error))
        raise typer.Exit(error.code) from error
    except KubeClusterError as error:
        _print_error(str(error).replace(*_NAMESPACE))
        raise typer.Exit(Exit.NOT_FOUND if error.status == HTTPStatus.NOT_FOUND else Exit.FAILED) from error
    except (KeyboardInterrupt, asyncio.CancelledError) as error:
        raise typer.Exit(Exit.INTERRUPTED) from error


def _print_error(text: str) -> None:
    """An error, as the one line that a script's log has of it; what others said may have more."""
    write_message(f"error: {' '.join(text.split())}")


def _is_help(error: Exception) -> bool:
    """True if it is no error but the help of a command without arguments."""
    return type(error).__name__ == "NoArgsIsHelpError"


def _usage_error(error: Any) -> CliError:
    """A command line that is not right, in one line as every other error: what is wrong, and where to read on."""
    text = error.format_message().replace(_NOISE, "")
    path = error.ctx.command_path if error.ctx is not None else "gpudask"
    return CliError(f"{ended(text[:1].lower() + text[1:])} See {path} --help", Exit.USAGE)


def make_app() -> typer.Typer:
    """The app, as `main` runs it and the reference page describes it."""
    app = typer.Typer(
        name="gpudask",
        cls=Commands,
        help="Dask clusters of CPU and GPU pools on Kubernetes, from the command line.",
        epilog=CODES,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name, command in COMMANDS.items():
        app.command(name, epilog=CODES)(command)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gpudask {metadata.version('gpudask')}")
        raise typer.Exit


def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The options before a command."""


app = make_app()


def main() -> None:
    """Run the command line; under its plugin's name it calls itself as kubectl's users do."""
    if os.environ.get(completion.VARIABLE):
        completion.answer_alone(lambda: app(prog_name="gpudask"))
    plugin = Path(sys.argv[0]).name.startswith(PLUGIN)
    app(prog_name="kubectl gpudask" if plugin else "gpudask")


def complete_for_kubectl() -> None:
    """Answer kubectl after TAB on `kubectl gpudask`: the program `kubectl_complete-gpudask`."""
    completion.answer_alone(
        lambda: sys.stdout.write(completion.kubectl_answer(completion.candidates(make_app(), sys.argv[1:])))
    )
