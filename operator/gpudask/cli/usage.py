"""A command line that is not right, in one line as every other error: what is wrong, and where to read on."""

from __future__ import annotations

from typing import Any

import typer

from gpudask.cli.exits import CliError, Exit, ended

# Of typer's own parser or of click, as the version has it: only its children have a public name in both.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_NOISE = "Value error, "


def is_help(error: Exception) -> bool:
    """Whether it is no error but the help of a command that was given no words."""
    return type(error).__name__ == "NoArgsIsHelpError"


def told(error: Any) -> CliError:
    """The error as a command raises it."""
    text = error.format_message().replace(_NOISE, "")
    path = error.ctx.command_path if error.ctx is not None else "gpudask"
    return CliError(f"{ended(text[:1].lower() + text[1:])} See {path} --help", Exit.USAGE)
