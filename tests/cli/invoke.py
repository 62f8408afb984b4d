"""Running the command line in a test: its exit code, its results, and what it said besides."""

from __future__ import annotations

from click.testing import Result
from typer.testing import CliRunner

from gpudask.cli.main import app


def invoke(*arguments: str, stdin: str | None = None, env: dict[str, str] | None = None) -> Result:
    """The outcome; an error that the command line does not know is raised."""
    result = CliRunner().invoke(app, list(arguments), input=stdin, env=env, prog_name="gpudask")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
