"""The app: every command under its name, and how errors become exit codes.

A command is imported when it is called, or its own help: `gpudask --help` and a mistyped word cost a tenth of a second.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from importlib import import_module, metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from gpudask.cli.output import CliError, Exit, ended, let_go, write_message
from gpudask.kubecluster.errors import KubeClusterError

PLUGIN = "kubectl-gpudask"
_NAMESPACE = "another namespace=", "another namespace, with -n"  # as Python's words are written in a shell
CODES = "Exit codes: " + "; ".join(f"{code.value} {code.meaning}" for code in Exit) + "."
# Each with its file in `commands` and the first sentence of its help: the help of all loads none of them.
COMMANDS = {
    "get": ("get", "List clusters, or show one with its pools."),
    "create": ("create", "Create a cluster from a manifest or flags."),
    "scale": ("scale", "Set the sizes of pools, or give them back."),
    "suspend": ("suspend", "Remove every pod, keep the cluster."),
    "resume": ("suspend", "Bring a suspended cluster back."),
    "delete": ("delete", "Delete clusters with all their pods."),
    "wait": ("wait", "Wait until a cluster is as it should be."),
    "logs": ("logs", "Print logs of the scheduler or of workers."),
    "run": ("run", "Run a script as a job beside a cluster."),
    "attach": ("run", "Show the log of a job until it ends."),
    "history": ("history", "Show what became of clusters, also of those that are gone."),
    "top": ("top", "Show pools, GPUs and demand live."),
    "cost": ("cost", "Show what GPUs cost, and what of it worked."),
    "report": ("report", "Write a page about one cluster."),
    "dashboard": ("connect", "Forward a port to the dashboard."),
    "connect": ("connect", "Forward a port to the scheduler."),
    "convert": ("convert", "Turn the stock operator's manifests into ours."),
    "render": ("render", "Print the objects that a manifest becomes."),
    "doctor": ("doctor", "Check what the operator needs, and say how to mend it."),
}
COMPLETION_VARIABLE = "_GPUDASK_COMPLETE"
# Of typer's own parser or of click, as the version has it: only its children have a public name in both.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_NOISE = "Value error, "
_BEFORE_A_VERB = ("--kubeconfig", "--context", "--namespace", "-n")


class Commands(TyperGroup):
    """The commands in their order; an error that is known is one line and an exit code, never a traceback."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **options: Any) -> Any:
        """Read what stands before a command; completion reads half a line, which has no errors."""
        args = _with_values(verb_first(args))
        if options.get("resilient_parsing"):
            return super().make_context(info_name, args, *rest, **options)
        with _one_line():
            return super().make_context(info_name, args, *rest, **options)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load the command that is named; what stands for the others has their names and first sentences."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and load(name or ""), rest

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
    except BrokenPipeError as error:
        let_go()
        raise typer.Exit(Exit.UNREAD) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(Exit.INTERRUPTED) from error
    except typer.Abort as error:  # at a question: ctrl-C, or its input ended
        write_message("")  # the question's line ends here
        if isinstance(error.__context__, KeyboardInterrupt):
            raise typer.Exit(Exit.INTERRUPTED) from error
        _print_error("no answer came: the input has ended")
        raise typer.Exit(Exit.FAILED) from error


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
    is_of_script = path.endswith(" run") and type(error).__name__ == "NoSuchOption"
    step = f" Write what is for the script after --: gpudask run SCRIPT -- {error.option_name}." if is_of_script else ""
    return CliError(f"{ended(text[:1].lower() + text[1:])}{step} See {path} --help", Exit.USAGE)


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
    for name, (_, sentence) in COMMANDS.items():
        app.command(name, help=sentence)(_stand_in)
    return app


def load(name: str) -> Any:
    """The command `name`, with its options and its help."""
    function = getattr(import_module(f"gpudask.cli.commands.{COMMANDS[name][0]}"), f"{name}_command")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command(name, epilog=CODES)(function)
    return get_command(alone)


def _stand_in() -> None:
    """The place of a command that was not loaded; never called."""


def verb_first(words: list[str]) -> list[str]:
    """The words of a command line with what stands before the command put behind it: kubectl takes both ways.

    What was written behind it counts more, because it comes later.
    """
    taken, rest = [], list(words)
    while rest and (length := _length(rest[0])):
        taken += rest[:length]
        rest = rest[length:]
    return [rest[0], *taken, *rest[1:]] if rest else list(words)


def _with_values(words: list[str]) -> list[str]:
    """A bare `--dry-run` of `create` means the client's: the parser knows no options that may have a value or not."""
    if words[:1] != ["create"]:
        return words
    return ["--dry-run=client" if word == "--dry-run" else word for word in words]


def _length(word: str) -> int:
    """The number of words of such an option; 0: it is none."""
    name, is_joined, _ = word.partition("=")
    if name in _BEFORE_A_VERB:
        return 1 if is_joined else 2
    return 1 if word.startswith("-n") else 0


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
    if os.environ.get(COMPLETION_VARIABLE):
        from gpudask.cli import completion  # noqa: PLC0415 - only a shell's TAB needs it

        completion.answer_alone(lambda: app(prog_name="gpudask"))
    plugin = Path(sys.argv[0]).name.startswith(PLUGIN)
    app(prog_name="kubectl gpudask" if plugin else "gpudask")


def complete_for_kubectl() -> None:
    """Answer kubectl after TAB on `kubectl gpudask`: the program `kubectl_complete-gpudask`."""
    from gpudask.cli import completion  # noqa: PLC0415

    completion.answer_alone(
        lambda: sys.stdout.write(
            completion.kubectl_answer(completion.candidates(make_app(), sys.argv[1:], COMPLETION_VARIABLE))
        )
    )
